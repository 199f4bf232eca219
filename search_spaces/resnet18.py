"""The search space of ResNet-18 from scratch, and the published hyperparameters.

Batch sizes are per worker, and learning rates are for the published batch size.
"""

from collections.abc import Sequence
from functools import partial

from optuna import Trial


def space(trial: Trial, batch_sizes: Sequence[int] = (32, 64, 128, 256)) -> None:
    """Suggest the hyperparameters."""
    # Half to four times the 64 that are published for each of 2 workers, of which a device trains 64 at once, so that
    # three of the four share one graph.
    trial.suggest_categorical("batch_size", batch_sizes)
    # SGD as published, or AdamW, which is less sensitive in a single epoch.
    if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
        # From the published 1e-3, which is low without momentum, to beyond the 0.1 of He et al. 2016.
        trial.suggest_float("sgd.lr", 1e-3, 5e-1, log=True)
        # None as published, and others evenly spaced in the logarithm of 1 - m: steps average over 1 / (1 - m)
        # gradients.
        trial.suggest_categorical("momentum", [0.0, 0.5, 0.8, 0.9, 0.95])
        # None as published, or around the 1e-4 of He et al. 2016.
        trial.suggest_categorical("sgd.weight_decay", [0.0, 1e-5, 1e-4, 1e-3])
    else:
        # Around torch's own 1e-3.
        trial.suggest_float("adamw.lr", 1e-4, 1e-2, log=True)
        # None, or around torch's own 0.01.
        trial.suggest_categorical("adamw.weight_decay", [0.0, 1e-3, 1e-2, 1e-1])
    # Constant as published, or falling to nothing.
    trial.suggest_categorical("schedule", ["constant", "cosine"])
    # Up to a fifth of the steps, since large learning rates need it; the published run has none.
    trial.suggest_float("warmup", 0.0, 0.2)


BASELINE = {
    "lr": 1e-3,
    "batch_size": 64,
    "optimizer": "sgd",
    "momentum": 0.0,
    "weight_decay": 0.0,
    "schedule": "constant",
    "warmup": 0.0,
}
"""The values of the workshop's ResNet-18 on Tiny ImageNet, with 64 images on each of 2 workers."""

sample_space = partial(space, batch_sizes=(64, 128, 256, 512))
SAMPLE_BASELINE = {**BASELINE, "batch_size": 128}
"""The same values for a few thousand digits. Here the batch size is that of all workers together."""
