"""Experiments to run, and the programmatic API: ``from experiments import build_tuner``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import trainables

if Path(str(trainables.__file__)).parents[1] != Path(__file__).parents[1]:
    raise ImportError(
        f"{Path(str(trainables.__file__)).parent} hides the package trainables of gaudi-tune, and no train loop runs "
        f"without that; give it another name"
    )

from gaudi_tune.base.errors import SweepError
from gaudi_tune.cli.command_line import main
from gaudi_tune.cli.tune_script import tune_script
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.experiment import Experiment, Recipe
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.define.published_run import OtherBaseline, Published
from gaudi_tune.define.search_space import WithPrior
from gaudi_tune.training.session import report

if TYPE_CHECKING:
    from ray import tune

    from gaudi_tune.on_ray.tuner import build_tuner

__all__ = [
    "Budget", "Experiment", "OtherBaseline", "Published", "Recipe", "SweepError", "SweepOptions", "WithPrior",
    "build_tuner", "main", "report", "tune", "tune_script",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what needs Ray when it is asked for: ``--help`` does without."""
    if name == "build_tuner":
        from gaudi_tune.on_ray.tuner import build_tuner

        return build_tuner
    if name == "tune":  # ranges for spaces: tune.loguniform(1e-4, 1e-1)
        from ray import tune

        return tune
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
