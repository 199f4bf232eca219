"""Search space of fine-tuning a vision transformer, and the published hyperparameters.

Batches are per worker, and learning rates for the published one.
"""

from optuna import Trial


def space(trial: Trial) -> None:
    """Ask for the hyperparameters."""
    # A quarter to twice the 256 that are published for each of 8 HPUs.
    trial.suggest_categorical("batch_size", [64, 128, 256, 512])
    # SGD, as published and as in Dosovitskiy et al. 2021, or what most have fine-tuned with since.
    if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
        # Dosovitskiy et al. fine-tune at 0.001 to 0.06; wider above for small sets and networks.
        trial.suggest_float("sgd.lr", 1e-3, 5e-1, log=True)
        # Even in the logarithm of 1 - m: steps average over 1 / (1 - m) gradients. 0.9 is published.
        trial.suggest_categorical("momentum", [0.8, 0.9, 0.95, 0.98])
        # None, as published, to the 1e-3 that pays when little data is trained on long.
        trial.suggest_categorical("sgd.weight_decay", [0.0, 1e-5, 1e-4, 1e-3])
    else:
        # Around the 1e-4 of fine-tuning; small networks from scratch want the upper end.
        trial.suggest_float("adamw.lr", 1e-5, 3e-3, log=True)
        # None, to the 0.3 with which vision transformers are trained from scratch.
        trial.suggest_categorical("adamw.weight_decay", [0.0, 1e-2, 1e-1, 3e-1])
    # Cosine as published; the source's script has linear, too.
    trial.suggest_categorical("schedule", ["cosine", "linear"])
    # 500 of 20,000 steps are published; up to a fifth.
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
"""ViT-B/16 on Imagenette on 8 Gaudi 2: a batch of 2,048, and 500 warm-up steps of 20,000."""

sample_space, SAMPLE_BASELINE = space, BASELINE
"""The same for a small network on 1,411 images, where the batch is that of all workers."""
