"""What is tuned: the Experiment, a value that each ``tune_<model>.py`` defines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from optuna import Trial

from experiments.sweep.budget import Budget
from trainables.prediction import Predictor
from trainables.runtime import TrialConfig, names
from trainables.runtime.worker_group import TrainLoop

SearchSpace: TypeAlias = Mapping[str, Any] | Callable[[Trial], Mapping[str, Any] | None]
"""Ranges by hyperparameter (``ray.tune.uniform`` and its like), or a function that asks an Optuna trial for them."""

RecipeName: TypeAlias = Literal["full", "sample"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What the trials of an experiment train on, and how long."""

    settings: Callable[[], Mapping[str, Any]]
    """Returns settings of the train loop that differ from its defaults; may make the data that they point to."""
    budget: Budget
    """How long a trial trains that is not stopped early."""
    num_samples: int
    """Trials in a sweep, the baseline included."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A train loop and everything a sweep must know to tune it."""

    name: str
    """Short; names sweeps and the MLflow experiment."""
    train_loop: TrainLoop
    """An ordinary Ray Train loop that reads the fields of ``config_class`` from its ``config``."""
    config_class: type[TrialConfig]
    """Hyperparameters (fields without a default) and settings (fields with one)."""
    space: SearchSpace
    """Where to search."""
    baseline: Mapping[str, Any]
    """The published hyperparameters, always the first trial."""
    recipes: Mapping[RecipeName, Recipe]
    """``full`` is the published recipe, ``sample`` a small one that needs no download."""
    check: Callable[[Any], list[str]]
    """Given the baseline's configuration, loads data and model as a trial would, raises ValueError, returns facts."""
    load_line: str
    """Python that loads a checkpoint, with ``{checkpoint}`` for its folder."""
    predictor: Callable[[Path], Predictor] | None = None
    """Makes of a checkpoint's folder what predicts from raw input, for MLflow; a function of an importable module.
    None: MLflow gets the checkpoint alone."""
    telling: tuple[str, ...]
    """The hyperparameters that tell trials apart best, for names and tables; at most three."""
    metric: str = names.VAL_ACCURACY
    """Reported by the train loop."""
    mode: Literal["max", "min"] = "max"
    """Whether more or less of ``metric`` is better."""

    def __post_init__(self) -> None:
        if self.mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', but got {self.mode!r}")
        unknown = sorted(set(self.telling) - set(self.config_class.field_names()))
        if unknown:
            raise ValueError(f"telling must name fields of {self.config_class.__name__}, but got {unknown}")
        place, name = getattr(self.predictor, "__module__", ""), getattr(self.predictor, "__qualname__", "")
        if self.predictor is not None and (place == "__main__" or not name.isidentifier()):
            raise ValueError(
                f"predictor must be a function of a module that others can import, but got {self.predictor}"
            )

    def worker_environment(self, config: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables that a worker must be started with for a trial of this configuration."""
        return self.config_class.from_dict(config).worker_environment()

    def better(self, value: float, than: float) -> bool:
        """Whether ``value`` of the metric is strictly better than another."""
        return value > than if self.mode == "max" else value < than

    def leads(self, value: float, trial: int, best: tuple[float, int] | None) -> bool:
        """Whether ``value``, reported by the trial of this number, is the best of a sweep so far.

        ``best`` are value and number of the best before. Of equal values that of the lower number is the best, so that
        terminal, MLflow and summary name the same trial, whichever reports first.
        """
        if best is None or not math.isfinite(value):
            return math.isfinite(value)
        return self.better(value, than=best[0]) or (value == best[0] and trial < best[1])
