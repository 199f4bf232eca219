"""What to tune: the Experiment, a value that each ``tune_<model>.py`` defines."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import format_value
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Mode, Objective
from gaudi_tune.define.published_run import OtherBaseline, Published
from gaudi_tune.define.ranges import middle
from gaudi_tune.define.search_space import SearchSpace, SpaceFunction
from gaudi_tune.training.trial_config import PlainConfig, TrialConfig

if TYPE_CHECKING:
    from gaudi_tune.training.prediction import Predictor
    from gaudi_tune.training.session import TrainLoop

RecipeName: TypeAlias = Literal["full", "sample"]


CHECKPOINT = "{checkpoint}"
"""Stands for the folder of a checkpoint in :attr:`Experiment.load_line`; other braces there stay as they are."""
USUAL_BUDGET = Budget(epochs=10)
USUAL_SAMPLES = 20


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What the trials of an experiment train on, and how long."""

    settings: Callable[[], Mapping[str, Any]] = dict
    """Returns the settings of the train loop that differ from its defaults; may create the data they point to."""
    budget: Budget = USUAL_BUDGET
    """How long a trial trains if it is not stopped early."""
    num_samples: int = USUAL_SAMPLES
    """Trials in a sweep, the baseline included."""
    confirm: int = 0
    """How many of the best to train again after the search, in full and with new seeds, together with the baseline."""
    seeds: int = 4
    """Seeds for each of these: the best trial and the baseline then take one round on the 8 devices of a node."""
    space: Mapping[str, Any] | SpaceFunction | SearchSpace | None = None
    """A search space for this recipe only; None: the experiment's."""
    baseline: Mapping[str, Any] | None = None
    """The first trial in that space."""

    def __post_init__(self) -> None:
        if (self.space is None) != (self.baseline is None):
            raise ValueError("a recipe's space and baseline go together: give both, or neither")
        if not isinstance(self.budget, Budget):
            raise ValueError(f"budget must be a Budget, such as Budget(epochs=10), but got {self.budget!r}")
        if type(self.num_samples) is not int or self.num_samples < 1:
            raise ValueError(f"num_samples must be a whole number from 1, such as 20, but got {self.num_samples!r}")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A train loop and everything a sweep needs to tune it. The loop, a space and a metric are enough."""

    train_loop: TrainLoop
    """An ordinary Ray Train loop, which takes the configuration of a trial as a dict."""
    space: Mapping[str, Any] | SpaceFunction | SearchSpace
    """Where to search: by name, ranges of Optuna or of Ray Tune and constants; or a function of an Optuna trial."""
    metric: str = names.VAL_ACCURACY
    """Reported by the train loop."""
    mode: Mode = "max"
    """Whether more or less of ``metric`` is better."""
    budget: Budget = USUAL_BUDGET
    """How long a trial trains if it is not stopped early. A recipe may say another."""
    num_samples: int = USUAL_SAMPLES
    """Trials in a sweep, the baseline included. A recipe may say another."""
    name: str = ""
    """Short name for sweeps and the MLflow experiment. Default: that of the file with the train loop."""
    config_class: type[TrialConfig] = PlainConfig
    """The hyperparameters (fields without a default) and settings (fields with one) that the train loop knows.
    Default: those of the space and of the recipe's settings."""
    baseline: Mapping[str, Any] = field(default_factory=dict)
    """The published hyperparameters, always the first trial. Empty: there is nothing to compare with."""
    recipes: Mapping[RecipeName, Recipe] = field(default_factory=dict)
    """``full`` is the published recipe, ``sample`` a small one that needs no download. One alone serves as both."""
    check: Callable[[Any], list[str]] | None = None
    """Sees that data and model of the baseline's configuration can be used, and returns facts for the plan. Raises
    ValueError if a trial could not train. What it imports, the first trial waits for."""
    load_line: str = ""
    """Python code that loads a checkpoint, with ``{checkpoint}`` for its folder."""
    predictor: Callable[[Path], Predictor] | None = None
    """Turns the folder of a checkpoint into a model for MLflow, which predicts from raw input; a function of an
    importable module. None: MLflow gets only the checkpoint."""
    display_params: tuple[str, ...] = ()
    """The hyperparameters to show in lines and tables. Default: the first three of the space, eight if it branches."""
    per_worker: tuple[str, ...] = ()
    """Hyperparameters that ``space`` and ``baseline`` give per worker, such as a batch that is published per device; a
    trial multiplies them by its workers."""
    scale_lr: bool = False
    """Whether ``lr`` is meant for the baseline's batch and scales with the batch of a trial: ``lr_for_batch`` of
    :class:`~gaudi_tune.training.training_config.TrainingConfig`."""
    imports: Sequence[str] = ()
    """Modules that take long to import and that trials import: all workers get them from one process, which imports
    them while Ray starts. torch, and what a script imports itself, need not be named."""
    published: Published | None = None
    """What the source of the baseline reports about it."""
    baselines: Mapping[str, OtherBaseline] = field(default_factory=dict)
    """Other published runs, by the name that ``--baseline`` takes."""

    def __post_init__(self) -> None:
        Objective(self.metric, self.mode)  # says what is wrong with them
        _check_train_loop(self.train_loop)
        if not isinstance(self.baseline, Mapping):
            raise ValueError(f"baseline must be values by name, such as {{'lr': 0.01}}, but got {self.baseline!r}")
        Recipe(budget=self.budget, num_samples=self.num_samples)  # says what is wrong with them
        if not self.name:
            object.__setattr__(self, "name", _name_of(self.train_loop))
        known = self.baseline or (self.search_space.names if self.per_worker else {})
        if strange := sorted(set(self.per_worker) - set(known)):
            raise ValueError(f"per_worker must name hyperparameters of the baseline, but got {strange}")
        if self.scale_lr and "lr_for_batch" not in self.config_class.field_names():
            raise ValueError(
                f"scale_lr: {self.config_class.__name__} has no lr_for_batch; derive it from TrainingConfig"
            )
        unknown = sorted(set(self.display_params) - set(self.config_class.field_names()))
        if unknown and self.config_class is not PlainConfig:
            raise ValueError(f"display_params must name fields of {self.config_class.__name__}, but got {unknown}")
        if not isinstance(self.load_line, str):
            raise ValueError(
                f"load_line must be a line of Python with {CHECKPOINT} for the checkpoint's folder, but got "
                f"{self.load_line!r}"
            )
        place, name = getattr(self.predictor, "__module__", ""), getattr(self.predictor, "__qualname__", "")
        if self.predictor is not None and (place == "__main__" or not name.isidentifier()):
            raise ValueError(
                f"predictor must be a function of a module that others can import, but got {self.predictor}: MLflow "
                f"loads it without this script; put it into a file beside the script, and import it from there"
            )

    def recipe(self, name: RecipeName, baseline: str | None = None) -> Recipe:
        """Return a recipe; the other one, or one of the experiment's own budget, where there is none of this name. The
        full one has the budget of the published run that ``baseline`` names, if it does."""
        usual = Recipe(budget=self.budget, num_samples=self.num_samples)
        found = self.recipes.get(name, next(iter(self.recipes.values()), usual))
        other = self.baselines.get(baseline or "")
        return found if other is None or name != "full" else replace(found, budget=other.budget)

    @property
    def has_recipes(self) -> bool:
        """Whether there is more than one recipe to choose from."""
        return self.recipe("full") != self.recipe("sample")

    def at(self, recipe: RecipeName, workers: int, baseline: str | None = None) -> Experiment:
        """Return the experiment as a recipe has it for trials of so many workers: search space, baseline, and what the
        train loop knows. Where ``baseline`` names another published run, that is its baseline; the sample recipe has
        the run's values for one worker."""
        own, other = self.recipe(recipe), self.baselines.get(baseline or "")
        if own.space is not None and own.baseline is not None:
            found = replace(self, space=own.space, baseline=own.baseline, per_worker=())
        else:
            times = {name: workers * value for name, value in self.baseline.items() if name in self.per_worker}
            space = self.search_space.multiply(self.per_worker, workers)
            found = replace(self, space=space, baseline={**self.baseline, **times}, per_worker=())
        if other is not None:
            space, values = found.search_space.fix(other.settings), other.values(workers if recipe == "full" else 1)
            found = replace(found, space=space, baseline=values, published=other.published)
        if found.config_class is PlainConfig:
            space = found.search_space
            in_space = {name: space.values(name) for name in sorted(space.names)}
            known = {**{name: [value] for name, value in {**own.settings(), **space.fixed}.items()}, **in_space}
            found = replace(found, config_class=PlainConfig.with_fields(known, space.always))
        if found.display_params:
            return found
        searched = tuple(found.search_space.ranges)
        # Any may say which branch it is.
        return replace(found, display_params=searched[: 8 if found.search_space.branches else 3])

    def config_with(self, settings: Mapping[str, Any]) -> TrialConfig:
        """Return the configuration of the baseline, else of any proposal, with these settings; a ValueError if the
        train loop does not take them."""
        return self.config_class.from_dict({**settings, **self.first_params})

    def read_value(self, name: str, given: Any) -> Any:
        """Return the value of a hyperparameter or a setting that a person gave, perhaps as text.

        Raises:
            ValueError: It is of another type.
        """
        for choice in self.search_space.values(name):  # which may be None, or of several types
            text = str(choice)
            if str(given) in ({text, text.lower()} if isinstance(choice, bool) else {text}):  # TOML writes true
                return choice
        return self.config_class.typed(name, given)

    def read_config(self, settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration of the search space from what a person gave: values by hyperparameter, numbers perhaps
        as text; an empty text is none.
        """
        space, words = self.search_space, self.search_space.in_words()
        given = {name: value for name, value in given.items() if value != ""}
        if unknown := sorted(set(given) - set(words)):
            raise SweepError(f"{', '.join(unknown)}: no such hyperparameter is searched; there are {', '.join(words)}")
        if missing := sorted(space.always_searched - set(given)):
            raise SweepError(f"{missing[0]}: every trial needs a value; give one in its range, {words[missing[0]]}")
        config: dict[str, Any] = {}
        for name, value in given.items():
            try:
                config[name] = self.read_value(name, value)
            except ValueError as error:  # noqa: PERF203  (a few values)
                raise SweepError(f"{error}; its range is {words[name]}") from error
        for name in space.outside(config):
            near = format_value(middle(space.ranges[name][0]))
            raise SweepError(
                f"{name}={config[name]} is not in its range, {words[name]}; give a value inside, such as {near}"
            )
        asked = space.at(config)
        if useless := sorted(set(config) - set(asked.ranges)):
            raise SweepError(f"{useless[0]}: the space asks for none with these other values; leave it empty")
        try:
            self.config_class.from_dict({**settings, **asked.config})
        except ValueError as error:
            raise SweepError(str(error)) from error
        return config

    @property
    def first_params(self) -> Mapping[str, Any]:
        """What the space gives the baseline; without one, any proposal."""
        return self.search_space.at(self.baseline).config if self.baseline else self.search_space.example

    @cached_property
    def search_space(self) -> SearchSpace:
        """The space as everything else uses it; raises SweepError where it is none."""
        return self.space if isinstance(self.space, SearchSpace) else SearchSpace(self.space)

    @property
    def objective(self) -> Objective:
        """The metric and its mode in one value, which also says which of two values is better."""
        return Objective(self.metric, self.mode)


def _check_train_loop(train_loop: TrainLoop) -> None:
    """See that it can be called with a configuration; a ValueError if not."""
    if isinstance(train_loop, type):
        raise ValueError(
            f"train_loop must be a function of a configuration, but got the class {train_loop.__name__}; give a "
            f"function that reports once an epoch, in place of a tune.Trainable whose step() is called"
        )
    if not callable(train_loop):
        raise ValueError(
            f"train_loop must be a function of a configuration, but got {train_loop!r}; give the function "
            f"itself, without calling it"
        )
    try:
        inspect.signature(train_loop, follow_wrapped=False).bind({})
    except TypeError as error:
        raise ValueError(
            f"train_loop must take one argument, the configuration of a trial, but {train_loop!r} does not "
            f"({error}); give the others with functools.partial"
        ) from error
    except ValueError:
        pass  # of a built-in nobody knows
    if inspect.iscoroutinefunction(train_loop) or inspect.isgeneratorfunction(train_loop):
        raise ValueError(f"train_loop must be a plain function, but {train_loop!r} is async, or yields")


def _name_of(train_loop: TrainLoop) -> str:
    """Return the name of the file with a train loop, as names may be; in a notebook the function's."""
    function = getattr(train_loop, "func", train_loop)  # of a functools.partial
    module, name = getattr(function, "__module__", "__main__"), getattr(function, "__name__", type(function).__name__)
    found = module.rpartition(".")[2]
    if module in ("__main__", "builtins"):  # builtins: code that exec() ran without a name
        script = getattr(sys.modules["__main__"], "__file__", None)
        found = Path(script).stem if script else name
    return as_name(found)


def as_name(words: str) -> str:
    """Return the name of a file or function as names of experiments may be."""
    return re.sub(r"[^\w.-]+|^\W+", "-", words).strip("-")[:50] or "own"
