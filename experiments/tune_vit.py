"""Tune a vision transformer.

full: ViT-B/16 with ImageNet-21k weights on Imagenette at 160 pixels, 20,000 steps a trial with an evaluation every
1,000; any folder of images with --data, other sizes with --set size=L/16. Published on 8 HPUs: 6,800 images/s over
whole epochs; no accuracy. sample: a ViT of 2 layers from scratch on handwritten digits of 32 by 32 pixels in train/ and
test/, 360 steps a trial with an evaluation every 40; chance is 0.1, the best trial of a sweep passes 0.7.
"""

from gaudi_tune import Budget, Experiment, Recipe, main
from gaudi_tune.data.pretrained import RANDOM
from gaudi_tune.data.sample_digits import digit_settings
from search_spaces.vit import BASELINE, sample_space, space
from trainables import vit


def sample_settings() -> dict[str, object]:
    """Make the data of the sample recipe, and return its settings."""
    small = {"size": "sample", "model": RANDOM, "dropout": 0.0, "zero_head": False, "loader_workers": 0}
    return {**digit_settings("train-test"), **small, "flip": True, "resize": "crop"}


EXPERIMENT = Experiment(
    name="vit",
    train_loop=vit.train_loop,
    config_class=vit.ViTTrialConfig,
    space=space,
    baseline=BASELINE,
    recipes={
        "full": Recipe(settings=dict, budget=Budget(steps=20_000, eval_every=1_000), num_samples=32, confirm=1),
        "sample": Recipe(
            settings=sample_settings,
            budget=Budget(steps=360, eval_every=40),
            num_samples=8,
            space=sample_space,
            baseline=BASELINE,
        ),
    },
    check=vit.check,
    load_line='from trainables.vit import load_model; model, classes = load_model("{checkpoint}")',
    predictor=vit.predictor,
    imports=("torchvision", "transformers.modeling_utils", "evaluate"),
    display_params=("lr", "optimizer", "batch_size"),
    scale_lr=True,
    per_worker=("batch_size",),
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
