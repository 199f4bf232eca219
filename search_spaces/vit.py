"""Search space of fine-tuning a vision transformer, and the published hyperparameters. Batches are per worker."""

from optuna.distributions import CategoricalDistribution, FloatDistribution

SPACE = {
    # Dosovitskiy et al. 2021 fine-tune at 0.001 to 0.06; wider on both sides for small sets and networks.
    "lr": FloatDistribution(1e-3, 5e-1, log=True),
    # A quarter to twice the 256 that are published for each of 8 HPUs.
    "batch_size": CategoricalDistribution([64, 128, 256, 512]),
    # Around the published 0.9.
    "momentum": FloatDistribution(0.5, 0.98),
    # Practically none, as published, to the 1e-3 that pays when little data is trained on long.
    "weight_decay": FloatDistribution(1e-7, 1e-3, log=True),
    # 500 of 20,000 steps are published; up to a fifth.
    "warmup": FloatDistribution(0.0, 0.2),
}

BASELINE = {
    "lr": 0.06,
    "batch_size": 256,
    "momentum": 0.9,
    "weight_decay": 1e-7,  # published: 0, which a logarithmic range cannot hold
    "warmup": 0.025,
}
"""ViT-B/16 on Imagenette on 8 Gaudi 2: a batch of 2,048, and 500 warm-up steps of 20,000."""

SAMPLE_SPACE, SAMPLE_BASELINE = SPACE, BASELINE
"""The same for a small network on 1,437 images, where the batch is that of all workers."""
