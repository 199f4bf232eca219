"""The search space of BERT fine-tuning, and the published hyperparameters. Learning rates are for a batch of 8."""

from collections.abc import Sequence
from functools import partial

from optuna import Trial


def space(
    trial: Trial,
    batch_sizes: Sequence[int] = (8, 16, 32),
    sgd_lr: tuple[float, float] = (1e-4, 3e-2),
    adamw_lr: tuple[float, float] = (5e-6, 1e-4),
) -> None:
    """Suggest the hyperparameters of a pretrained BERT."""
    # The published 8 up to 32, the largest of Devlin et al.; all are multiples of 8 HPUs.
    trial.suggest_categorical("batch_size", batch_sizes)
    # Constant as published, or linear as in BERT's own training.
    trial.suggest_categorical("schedule", ["constant", "linear"])
    # Up to a fifth of all steps, as for small data sets. BERT itself used 0.1; the published run has no warm-up.
    trial.suggest_float("warmup", 0.0, 0.2)
    # Around BERT's own 0.1; above 0.3 little is learned in a few epochs. No value compiles a graph.
    trial.suggest_float("dropout", 0.0, 0.3)
    # The published optimizer, and the one that BERT was pre-trained with.
    if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
        # A tenth to thirty times the published 1e-3.
        trial.suggest_float("sgd.lr", *sgd_lr, log=True)
        # Evenly spaced in the logarithm of 1 - m, since steps average over 1 / (1 - m) gradients. 0.9 is published.
        trial.suggest_categorical("momentum", [0.8, 0.9, 0.95, 0.98])
        # None as published, or around the usual 1e-4.
        trial.suggest_categorical("sgd.weight_decay", [0.0, 1e-5, 1e-4, 1e-3])
    else:
        # Devlin et al. 2019 fine-tune at 2e-5 to 5e-5 with batches of 16 and 32; a batch of 8 needs 0.5 to 0.7 of that.
        trial.suggest_float("adamw.lr", *adamw_lr, log=True)
        # None, or around the 0.01 of BERT's pre-training.
        trial.suggest_categorical("adamw.weight_decay", [0.0, 1e-3, 1e-2, 1e-1])


BASELINE = {
    "lr": 1e-3,
    "batch_size": 8,
    "optimizer": "sgd",
    "momentum": 0.9,
    "weight_decay": 0.0,
    "schedule": "constant",
    "warmup": 0.0,
    "dropout": 0.1,
}
"""The values of Ray's Gaudi example for BERT on Yelp reviews. The dropout is BERT's own."""

# A small BERT is trained from scratch; learning rates are for a batch of 16. BERT itself had batches of 256, and a few
# thousand sentences have too few of them. SGD: from the rate published for pretrained weights up to where such a
# network begins to diverge. AdamW: from a third of BERT's own 1e-4 to ten times as much. Not far above that, some seeds
# learn nothing.
sample_space = partial(space, batch_sizes=(16, 32, 64), sgd_lr=(1e-3, 1e-1), adamw_lr=(3e-5, 1e-3))
SAMPLE_BASELINE = {
    "lr": 1e-4,
    "batch_size": 16,
    "optimizer": "adamw",
    "weight_decay": 0.01,
    "schedule": "linear",
    "warmup": 0.01,
    "dropout": 0.1,
}
"""The values with which Devlin et al. 2019 trained BERT itself from scratch, but for the batch, which was 256."""
