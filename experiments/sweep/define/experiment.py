"""What is tuned: the Experiment, a value that each ``tune_<model>.py`` defines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from experiments.sweep.define.budget import Budget
from experiments.sweep.define.objective import Mode, Objective
from experiments.sweep.define.published import Published
from experiments.sweep.define.search_space import SearchSpace, SpaceFunction
from trainables.runtime import TrialConfig, names

if TYPE_CHECKING:
    from trainables.prediction import Predictor
    from trainables.runtime.group.worker_group import TrainLoop

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
    confirm: int = 0
    """How many of the best are trained again after the search, in full and with other seeds, and the baseline, too."""
    seeds: int = 4
    """How often each of them is: with one of the best and the baseline, one round on the 8 devices of a node."""
    space: Mapping[str, Any] | SpaceFunction | SearchSpace | None = None
    """A search space of this recipe's own; None: the experiment's."""
    baseline: Mapping[str, Any] | None = None
    """The first trial of this recipe's own space."""

    def __post_init__(self) -> None:
        if (self.space is None) != (self.baseline is None):
            raise ValueError("a recipe's space and baseline go together: give both, or neither")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A train loop and everything a sweep must know to tune it."""

    name: str
    """Short; names sweeps and the MLflow experiment."""
    train_loop: TrainLoop
    """An ordinary Ray Train loop that reads the fields of ``config_class`` from its ``config``."""
    config_class: type[TrialConfig]
    """Hyperparameters (fields without a default) and settings (fields with one)."""
    space: Mapping[str, Any] | SpaceFunction | SearchSpace
    """Where to search: by name, ranges of Optuna or of Ray Tune and constants; or a function of an Optuna trial."""
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
    display_params: tuple[str, ...]
    """The hyperparameters that tell trials apart best, for names and tables; at most three."""
    metric: str = names.VAL_ACCURACY
    """Reported by the train loop."""
    mode: Mode = "max"
    """Whether more or less of ``metric`` is better."""
    per_worker: tuple[str, ...] = ()
    """Hyperparameters that ``space`` and ``baseline`` give for one worker: they are multiplied by a trial's workers, as
    a batch is that is published per device."""
    scale_lr: bool = False
    """Whether ``lr`` is meant for the baseline's batch, so that other batches get another rate, as ``lr_for_batch`` of
    :class:`~trainables.runtime.training.training_config.TrainingConfig` says."""
    published: Published | None = None
    """What the source of the baseline says of it."""

    def __post_init__(self) -> None:
        Objective(self.metric, self.mode)  # says what is wrong with them
        if strange := sorted(set(self.per_worker) - set(self.baseline)):
            raise ValueError(f"per_worker must name hyperparameters of the baseline, but got {strange}")
        if self.scale_lr and "lr_for_batch" not in self.config_class.field_names():
            raise ValueError(
                f"scale_lr: {self.config_class.__name__} has no lr_for_batch; derive it from TrainingConfig"
            )
        unknown = sorted(set(self.display_params) - set(self.config_class.field_names()))
        if unknown:
            raise ValueError(f"display_params must name fields of {self.config_class.__name__}, but got {unknown}")
        place, name = getattr(self.predictor, "__module__", ""), getattr(self.predictor, "__qualname__", "")
        if self.predictor is not None and (place == "__main__" or not name.isidentifier()):
            raise ValueError(
                f"predictor must be a function of a module that others can import, but got {self.predictor}"
            )

    def at(self, recipe: RecipeName, workers: int) -> Experiment:
        """Return the experiment with the search space and the baseline of a recipe for trials of so many workers."""
        own = self.recipes[recipe]
        if own.space is not None and own.baseline is not None:
            return replace(self, space=own.space, baseline=own.baseline, per_worker=())
        times = {name: workers * value for name, value in self.baseline.items() if name in self.per_worker}
        space = self.search_space.multiply(self.per_worker, workers)
        return replace(self, space=space, baseline={**self.baseline, **times}, per_worker=())

    def worker_environment(self, config: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables that a worker must be started with for a trial of this configuration."""
        return self.config_class.from_dict(config).worker_environment()

    @cached_property
    def search_space(self) -> SearchSpace:
        """The space as everything else uses it; raises SweepError where it is none."""
        return self.space if isinstance(self.space, SearchSpace) else SearchSpace(self.space)

    @property
    def objective(self) -> Objective:
        """The metric and its mode in one value, which also says which of two values is better."""
        return Objective(self.metric, self.mode)
