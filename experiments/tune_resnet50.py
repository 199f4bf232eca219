"""Tune ResNet-50, fine-tuned on a small set of images.

full: weights of ImageNet, ants and bees (Hymenoptera), 10 epochs a trial. Published on 2 HPUs: accuracy 0.9605 in 43 s.
sample: a quarter-width ResNet-50 from scratch on handwritten digits of 32 by 32 pixels, 5 epochs a trial; chance
is 0.1, the best trial of a sweep passes 0.85.
"""

from gaudi_tune import Budget, Experiment, Recipe, main
from gaudi_tune.data.pretrained import RANDOM
from gaudi_tune.data.sample_digits import digit_settings
from search_spaces.resnet50 import BASELINE, space
from trainables import resnet, resnet50


def full_settings() -> dict[str, object]:
    """Return the settings of the full recipe: a pass is of the images that are published for a worker.

    A process loads about 370 images a second; without any, a Gaudi would wait for images most of the time.
    """
    return {"micro_batch": 16, "loader_workers": 4}


def sample_settings() -> dict[str, object]:
    """Make the data of the sample recipe, and return its settings."""
    return {**digit_settings("train-val"), "architecture": "resnet50-quarter", "model": RANDOM}


EXPERIMENT = Experiment(
    name="resnet50",
    train_loop=resnet50.train_loop,
    config_class=resnet50.ResNet50Config,
    space=space,
    baseline=BASELINE,
    recipes={
        "full": Recipe(settings=full_settings, budget=Budget(epochs=10), num_samples=32, confirm=1),
        "sample": Recipe(settings=sample_settings, budget=Budget(epochs=5), num_samples=8),
    },
    check=resnet.check_resnet,
    load_line='from trainables.resnet import load_model; model, classes = load_model("{checkpoint}")',
    predictor=resnet.predictor,
    imports=("torchvision", "evaluate"),
    display_params=("lr", "optimizer", "batch_size"),
    scale_lr=True,
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
