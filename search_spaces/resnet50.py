"""The search space of fine-tuning ResNet-50 on few images, and the published hyperparameters.

Learning rates are for a batch of 32.
"""

from optuna import Trial


def space(trial: Trial) -> None:
    """Suggest the hyperparameters."""
    # Around the published 32; all are multiples of 8 HPUs, and smaller than the 244 images of the full recipe. A device
    # trains 16 at once, as each of the 2 published workers, so that all share one graph.
    trial.suggest_categorical("batch_size", [16, 32, 64])
    # SGD as published, or AdamW, which is less sensitive in few steps.
    if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
        # A tenth to twenty times the published 1e-3, for a network from scratch. Above, the seed decides.
        trial.suggest_float("sgd.lr", 1e-4, 2e-2, log=True)
        # Evenly spaced in the logarithm of 1 - m, since steps average over 1 / (1 - m) gradients. 0.9 is published.
        trial.suggest_categorical("momentum", [0.8, 0.9, 0.95, 0.98])
        # None as published, or around the 1e-4 that is usual for training ResNets from scratch.
        trial.suggest_categorical("sgd.weight_decay", [0.0, 1e-5, 1e-4, 1e-3])
    else:
        # A tenth to three times torch's own 1e-3, and lower for pretrained weights.
        trial.suggest_float("adamw.lr", 1e-5, 3e-3, log=True)
        # None, or around torch's own 0.01.
        trial.suggest_categorical("adamw.weight_decay", [0.0, 1e-3, 1e-2, 1e-1])
    # Constant as published, or falling to nothing.
    trial.suggest_categorical("schedule", ["constant", "cosine"])
    # Up to two of ten epochs; the published run has no warm-up.
    trial.suggest_float("warmup", 0.0, 0.2)


BASELINE = {
    "lr": 1e-3,
    "batch_size": 32,
    "optimizer": "sgd",
    "momentum": 0.9,
    "weight_decay": 0.0,
    "schedule": "constant",
    "warmup": 0.0,
}
"""The values of Ray's Gaudi example for ResNet-50 on ants and bees."""
