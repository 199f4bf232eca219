"""Tune ResNet-50 from scratch on ImageNet.

full: ImageNet 2012 (--data ILSVRC2012), bf16, 90 epochs a trial on the published learning-rate table.
--workers-per-trial 8 trains each trial on 8 HPUs. docs/recipes.md has the command of the published run with LARS.
sample: a quarter-width ResNet-50 on handwritten digits of 32 by 32 pixels in ImageNet's layout, 9 epochs a trial on the
same table, shortened; chance is 0.1, the best trial of a sweep passes 0.6.
"""

from gaudi_tune import Budget, Experiment, Recipe, main
from gaudi_tune.data.sample_digits import digit_settings
from search_spaces.resnet50_imagenet import BASELINE, sample_space, space
from trainables import resnet, resnet50_imagenet


def full_settings() -> dict[str, object]:
    """Return the settings of the full recipe: the published batch of evaluation, and as much loading as fits."""
    return {"eval_batch": 256, "loader_workers": "auto"}


def sample_settings() -> dict[str, object]:
    """Make the data of the sample recipe, and return its settings."""
    return {**digit_settings("imagenet"), "architecture": "resnet50-quarter", "loader_workers": 0}


EXPERIMENT = Experiment(
    name="resnet50-imagenet",
    train_loop=resnet50_imagenet.train_loop,
    config_class=resnet50_imagenet.ResNet50ImageNetConfig,
    space=space,
    baseline=BASELINE,
    recipes={
        "full": Recipe(settings=full_settings, budget=Budget(epochs=90, grace=5), num_samples=32, confirm=1),
        "sample": Recipe(
            settings=sample_settings,
            budget=Budget(epochs=9, grace=4),  # until then, few trials are better than chance
            num_samples=8,
            space=sample_space,
            baseline=BASELINE,
        ),
    },
    check=resnet50_imagenet.check,
    load_line='from trainables.resnet import load_model; model, classes = load_model("{checkpoint}")',
    predictor=resnet.predictor,
    imports=("torchvision", "evaluate"),
    display_params=("lr", "batch_size", "weight_decay"),
    scale_lr=True,
    per_worker=("batch_size", "sgd.lr"),
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
