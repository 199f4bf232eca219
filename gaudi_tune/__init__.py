"""Hyperparameter search for PyTorch training with Ray Tune, on worker groups that stay warm from trial to trial.

    from gaudi_tune import Experiment, main

Every name is imported when it is first used: a worker needs none of what the command line needs, and ``--help`` needs
no Ray.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.flags.optimize > 1:
    raise ImportError(
        "python -OO, or PYTHONOPTIMIZE=2, removes docstrings, and without them Ray cannot be imported; remove it"
    )

if TYPE_CHECKING:
    from ray import tune

    from gaudi_tune.base.errors import SweepError
    from gaudi_tune.cli.command_line import main
    from gaudi_tune.cli.tune_script import tune_script
    from gaudi_tune.define.budget import Budget
    from gaudi_tune.define.experiment import Experiment, Recipe
    from gaudi_tune.define.options import SweepOptions
    from gaudi_tune.define.ranges import WithPrior
    from gaudi_tune.on_ray.tuner import build_tuner
    from gaudi_tune.training.keep import keep
    from gaudi_tune.training.session import SaveFunction, Sharded, get_checkpoint, get_context, report, save_if_asked
    from gaudi_tune.training.trial_config import TrialConfig

__all__ = [
    "Budget", "Experiment", "Recipe", "SaveFunction", "Sharded", "SweepError", "SweepOptions", "TrialConfig",
    "WithPrior", "build_tuner", "get_checkpoint", "get_context", "keep", "main", "report", "save_if_asked", "tune",
    "tune_script",
]  # fmt: skip

_HOMES = {
    "Budget": "gaudi_tune.define.budget",
    "Experiment": "gaudi_tune.define.experiment",
    "Recipe": "gaudi_tune.define.experiment",
    "SaveFunction": "gaudi_tune.training.session",
    "Sharded": "gaudi_tune.training.session",
    "SweepError": "gaudi_tune.base.errors",
    "SweepOptions": "gaudi_tune.define.options",
    "TrialConfig": "gaudi_tune.training.trial_config",
    "WithPrior": "gaudi_tune.define.ranges",
    "build_tuner": "gaudi_tune.on_ray.tuner",
    "get_checkpoint": "gaudi_tune.training.session",
    "get_context": "gaudi_tune.training.session",
    "keep": "gaudi_tune.training.keep",
    "main": "gaudi_tune.cli.command_line",
    "report": "gaudi_tune.training.session",
    "save_if_asked": "gaudi_tune.training.session",
    "tune": "ray.tune",
    "tune_script": "gaudi_tune.cli.tune_script",
}
"""The module that defines each public name; ``tune`` is Ray's, with ranges such as ``tune.loguniform(1e-4, 1e-1)``."""


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return home if name == "tune" else getattr(home, name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted({*globals(), *__all__})
