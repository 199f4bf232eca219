"""Search space of ResNet-50 from scratch on ImageNet, and the published hyperparameters. Batches are per worker."""

from optuna.distributions import CategoricalDistribution, FloatDistribution

SPACE = {
    # From three times the published peak of 0.8 down to an eightieth: 0.8 is Goyal's rule (2017) for a batch of 2,048,
    # and a batch of 64 wants a thirty-second of that.
    "lr": FloatDistribution(0.01, 2.4, log=True),
    # A quarter to twice the 256 that are published for each HPU, of 1 and of 8.
    "batch_size": CategoricalDistribution([64, 128, 256, 512]),
    # Around the published 0.9.
    "momentum": FloatDistribution(0.8, 0.98),
    # A tenth to ten times the published 1e-4.
    "weight_decay": FloatDistribution(1e-5, 1e-3, log=True),
    # On top of the published schedule's own rise, for large batches.
    "warmup": FloatDistribution(0.0, 0.1),
    # None as published, up to twice the 0.1 of the toolkit's faster variant.
    "label_smoothing": FloatDistribution(0.0, 0.2),
}

BASELINE = {
    "lr": 0.8,
    "batch_size": 256,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "warmup": 0.0,
    "label_smoothing": 0.0,
}
"""The toolkit's ResNet-50: 256 on each HPU, 2,048 on 8."""

SAMPLE_SPACE = {**SPACE, "batch_size": CategoricalDistribution([64, 128, 256, 512, 1024])}
SAMPLE_BASELINE = BASELINE
"""The same for a narrow network on 1,437 images, where the batch is that of all workers."""
