"""Tune ResNet-18 from scratch.

full: Tiny ImageNet as downloaded (--data tiny-imagenet-200), 200 classes, 1 epoch a trial as published (7 to 8 minutes
on 2 GPUs; no accuracy was published). One epoch gives ASHA nothing to stop: --epochs 27 does.
sample: handwritten digits of 32 by 32 pixels in Tiny ImageNet's layout, 5 epochs a trial; chance is 0.1,
the best trial of a sweep passes 0.95.
"""

from gaudi_tune import Budget, Experiment, Recipe, main
from gaudi_tune.data.sample_digits import digit_settings
from search_spaces.resnet18 import BASELINE, SAMPLE_BASELINE, sample_space, space
from trainables import resnet, resnet18


def sample_settings() -> dict[str, object]:
    """Make the data of the sample recipe, and return its settings."""
    return {**digit_settings("tiny-imagenet"), "normalization": "imagenet", "loader_workers": 0}


EXPERIMENT = Experiment(
    name="resnet18",
    train_loop=resnet18.train_loop,
    config_class=resnet18.ResNet18Config,
    space=space,
    baseline=BASELINE,
    recipes={
        # A pass is of the images that are published for a worker.
        "full": Recipe(settings=lambda: {"micro_batch": 64}, budget=Budget(epochs=1), num_samples=32, confirm=1),
        "sample": Recipe(
            settings=sample_settings,
            budget=Budget(epochs=5),
            num_samples=8,
            space=sample_space,
            baseline=SAMPLE_BASELINE,
        ),
    },
    check=resnet.check_resnet,
    load_line='from trainables.resnet import load_model; model, classes = load_model("{checkpoint}")',
    predictor=resnet.predictor,
    imports=("torchvision", "evaluate"),
    display_params=("lr", "optimizer", "batch_size"),
    scale_lr=True,
    per_worker=("batch_size",),
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
