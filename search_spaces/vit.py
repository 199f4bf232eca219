"""The search space of fine-tuning a vision transformer, and the published hyperparameters.

Batch sizes are per worker, and learning rates are for the published batch size.
"""

from collections.abc import Sequence
from functools import partial

from optuna import Trial


def space(trial: Trial, batch_sizes: Sequence[int] = (128, 256, 512)) -> None:
    """Suggest the hyperparameters."""
    # Half to twice the 256 that are published for each of 8 HPUs. As published, an HPU trains 128 at once, so that all
    # share one graph.
    trial.suggest_categorical("batch_size", batch_sizes)
    # SGD as published and as in Dosovitskiy et al. 2021, or AdamW, which most have used for fine-tuning since.
    if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
        # Dosovitskiy et al. fine-tune at 0.001 to 0.06. The range goes further up for small data sets and networks.
        trial.suggest_float("sgd.lr", 1e-3, 5e-1, log=True)
        # Evenly spaced in the logarithm of 1 - m, since steps average over 1 / (1 - m) gradients. 0.9 is published.
        trial.suggest_categorical("momentum", [0.8, 0.9, 0.95, 0.98])
        # From none, as published, to 1e-3, which helps in long training on little data.
        trial.suggest_categorical("sgd.weight_decay", [0.0, 1e-5, 1e-4, 1e-3])
    else:
        # Around the usual 1e-4 of fine-tuning; small networks from scratch need the upper end.
        trial.suggest_float("adamw.lr", 1e-5, 3e-3, log=True)
        # From none to the 0.3 that is usual for training vision transformers from scratch.
        trial.suggest_categorical("adamw.weight_decay", [0.0, 1e-2, 1e-1, 3e-1])
    # Cosine as published; the published script also has linear.
    trial.suggest_categorical("schedule", ["cosine", "linear"])
    # Up to a fifth of the steps; 500 of 20,000 are published.
    trial.suggest_float("warmup", 0.0, 0.2)


BASELINE = {
    "lr": 0.06,
    "batch_size": 256,
    "optimizer": "sgd",
    "momentum": 0.9,
    "weight_decay": 0.0,
    "schedule": "cosine",
    "warmup": 0.025,
}
"""The values of ViT-B/16 on Imagenette on 8 Gaudi 2, with a batch of 2,048 and 500 of 20,000 steps of warm-up."""

# With the same baseline, for a small network on 1,411 images. Here the batch size is that of all workers together.
sample_space = partial(space, batch_sizes=(64, 128, 256, 512))
