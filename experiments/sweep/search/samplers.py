"""Optuna's samplers by name."""

from __future__ import annotations

from typing import Any, cast

import optuna
from optuna.samplers import BaseSampler

from experiments.sweep.errors import SweepError

SAMPLERS = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "gp": "GPSampler",
    "qmc": "QMCSampler",
    "nsgaii": "NSGAIISampler",
}
"""Short names of Optuna's samplers; any other is named by its class."""


def make_sampler(name: str, seed: int) -> BaseSampler:
    """Return Optuna's sampler of that name.

    Raises:
        SweepError: There is none.
    """
    sampler_class = getattr(optuna.samplers, SAMPLERS.get(name.lower(), name), None)
    if not (isinstance(sampler_class, type) and issubclass(sampler_class, BaseSampler)):
        others = sorted(n for n in optuna.samplers.__all__ if n.endswith("Sampler") and n != "BaseSampler")
        raise SweepError(f"--search {name}: no such sampler; take {', '.join(SAMPLERS)} or one of {', '.join(others)}")
    try:
        sampler: BaseSampler = cast(Any, sampler_class)(seed=seed)
    except (TypeError, ValueError, ImportError) as error:
        raise SweepError(f"--search {name}: this sampler cannot be made from its name alone ({error})") from error
    return sampler
