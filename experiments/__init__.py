"""Experiments to run, and the programmatic API: ``from experiments import build_tuner``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import trainables

if Path(str(trainables.__file__)).parents[1] != Path(__file__).parents[1]:
    raise ImportError(
        f"{Path(str(trainables.__file__)).parent} hides the package trainables of gaudi-tune, and no train loop runs "
        f"without that; give it another name"
    )

from experiments.sweep.command_line import main
from experiments.sweep.define.budget import Budget
from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.experiment import Experiment, Recipe
from experiments.sweep.define.options import SweepOptions
from experiments.sweep.define.published import OtherBaseline, Published
from experiments.sweep.define.search_space import WithPrior
from experiments.sweep.tune_script import tune_script
from trainables.runtime import report

if TYPE_CHECKING:
    from ray import tune

    from experiments.sweep.on_ray.tuner import build_tuner

__all__ = [
    "Budget", "Experiment", "OtherBaseline", "Published", "Recipe", "SweepError", "SweepOptions", "WithPrior",
    "build_tuner", "main", "report", "tune", "tune_script",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what needs Ray when it is asked for: ``--help`` does without."""
    if name == "build_tuner":
        from experiments.sweep.on_ray.tuner import build_tuner

        return build_tuner
    if name == "tune":  # ranges for spaces: tune.loguniform(1e-4, 1e-1)
        from ray import tune

        return tune
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
