"""Search space of ResNet-18 from scratch, and the published hyperparameters. Batches are per worker."""

from optuna.distributions import CategoricalDistribution, FloatDistribution

SPACE = {
    # From the published 1e-3, which without momentum is little, to beyond the 0.1 of He et al. 2016.
    "lr": FloatDistribution(1e-3, 5e-1, log=True),
    # Half to four times the 64 that are published for each of 2 workers.
    "batch_size": CategoricalDistribution([32, 64, 128, 256]),
    # None as published, up to where SGD begins to overshoot.
    "momentum": FloatDistribution(0.0, 0.98),
    # Around the 1e-4 of He et al. 2016, down to practically none (published: none).
    "weight_decay": FloatDistribution(1e-7, 1e-2, log=True),
    # Up to a fifth of the steps, which large learning rates need; none is published.
    "warmup": FloatDistribution(0.0, 0.2),
}

BASELINE = {
    "lr": 1e-3,
    "batch_size": 64,
    "momentum": 0.0,
    "weight_decay": 1e-7,  # published: 0, which a logarithmic range cannot hold
    "warmup": 0.0,
}
"""The workshop's ResNet-18 on Tiny ImageNet, with 64 images on each of 2 workers."""

SAMPLE_SPACE = {**SPACE, "batch_size": CategoricalDistribution([64, 128, 256, 512])}
SAMPLE_BASELINE = {**BASELINE, "batch_size": 128}
"""The same for a few thousand digits, where the batch is that of all workers."""
