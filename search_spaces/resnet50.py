"""Search space of fine-tuning ResNet-50 on few images, and the published hyperparameters."""

from optuna.distributions import CategoricalDistribution, FloatDistribution

SPACE = {
    # Ten times below to a hundred times above the published 1e-3: a network that starts untrained wants the upper end.
    "lr": FloatDistribution(1e-4, 1e-1, log=True),
    # Around the published 32; all are multiples of 8 HPUs, and smaller than the 244 images of the full recipe.
    "batch_size": CategoricalDistribution([16, 32, 64]),
    # From little to where SGD begins to overshoot; 0.9 is published.
    "momentum": FloatDistribution(0.5, 0.98),
    # Up to ten times the 1e-4 that ResNets are trained from scratch with; none is published.
    "weight_decay": FloatDistribution(1e-7, 1e-3, log=True),
    # Up to two of ten epochs; none is published.
    "warmup": FloatDistribution(0.0, 0.2),
}

BASELINE = {
    "lr": 1e-3,
    "batch_size": 32,
    "momentum": 0.9,
    "weight_decay": 1e-7,  # published: 0, which a logarithmic range cannot hold
    "warmup": 0.0,
}
"""Ray's Gaudi example for ResNet-50 on ants and bees."""
