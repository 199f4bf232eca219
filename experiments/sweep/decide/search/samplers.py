"""Samplers by name: Optuna's, and one of our own."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, cast

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler

from experiments.sweep.decide.search.gaussian_process import GaussianProcessSampler
from experiments.sweep.define.errors import SweepError

SAMPLERS = {
    "gp": "GaussianProcessSampler",
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "qmc": "QMCSampler",
    "nsgaii": "NSGAIISampler",
}
"""Short names of samplers, Optuna's but for gp; any other of Optuna's is named by its class."""


ARGUMENTS: dict[str, dict[str, Any]] = {
    # Optuna's default, drawing hyperparameters together, proposes into holes between bad trials (docs/search.md).
    "TPESampler": {"multivariate": False}
}
"""What samplers get besides a seed, by class."""


def make_sampler(name: str, seed: int) -> BaseSampler:
    """Return the sampler of that name.

    Raises:
        SweepError: There is none.
    """
    class_name = SAMPLERS.get(name.lower(), name)
    sampler_class = (
        GaussianProcessSampler if class_name == "GaussianProcessSampler" else getattr(optuna.samplers, class_name, None)
    )
    if not (isinstance(sampler_class, type) and issubclass(sampler_class, BaseSampler)):
        others = sorted(filter(_needs_no_more_than_a_seed, optuna.samplers.__all__))
        raise SweepError(f"--search {name}: no such sampler; take {', '.join(SAMPLERS)} or one of {', '.join(others)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # the user named it
            sampler: BaseSampler = cast(Any, sampler_class)(seed=seed, **ARGUMENTS.get(class_name, {}))
    except (TypeError, ValueError, ImportError) as error:
        raise SweepError(f"--search {name}: this sampler cannot be made from its name alone ({error})") from error
    return sampler


def _needs_no_more_than_a_seed(name: str) -> bool:
    if not name.endswith("Sampler") or name.startswith("Base"):
        return False
    parameters = inspect.signature(getattr(optuna.samplers, name)).parameters
    return "seed" in parameters and all(p.default is not p.empty for p in parameters.values())
