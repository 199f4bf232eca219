"""Search space of BERT fine-tuning, and the published hyperparameters."""

from optuna.distributions import CategoricalDistribution, FloatDistribution

SPACE = {
    # Devlin et al. 2019 fine-tune with Adam at 2e-5 to 5e-5; the published recipe runs SGD at 1e-3, and SGD wants
    # ten to a hundred times what Adam wants. The range covers both, and small encoders that start untrained.
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    # The published 8 up to 32, the largest of Devlin et al.; all are multiples of 8 HPUs.
    "batch_size": CategoricalDistribution([8, 16, 32]),
    # The published optimizer, and the one BERT was made with.
    "optimizer": CategoricalDistribution(["sgd", "adamw"]),
    # From little to where SGD begins to overshoot; 0.9 is published.
    "momentum": FloatDistribution(0.7, 0.98),
    # Around the 0.01 of BERT's pre-training, down to practically none (published: none).
    "weight_decay": FloatDistribution(1e-6, 1e-1, log=True),
    # Up to the fifth of all steps that small data sets take; 0.1 is BERT's own, none is published.
    "warmup": FloatDistribution(0.0, 0.2),
    # Around BERT's own 0.1; above 0.3 little is learned in a few epochs.
    "dropout": FloatDistribution(0.0, 0.3),
}

BASELINE = {
    "lr": 1e-3,
    "batch_size": 8,
    "optimizer": "sgd",
    "momentum": 0.9,
    "weight_decay": 1e-6,  # published: 0, which a logarithmic range cannot hold
    "warmup": 0.0,
    "dropout": 0.1,
}
"""Ray's Gaudi example for BERT on Yelp reviews; dropout is BERT's own."""
