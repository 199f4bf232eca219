"""What to tune: the Experiment, which each ``tune_<model>.py`` defines."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError, shown_plainly, users_error, written
from gaudi_tune.base.words import format_value
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.field_rules import (
    check_baseline,
    check_count,
    check_function,
    check_kind,
    check_name,
    check_names,
    check_plain_type,
    check_texts,
    check_values,
)
from gaudi_tune.define.objective import Mode, Objective
from gaudi_tune.define.published_run import OtherBaseline, Published
from gaudi_tune.define.ranges import middle
from gaudi_tune.define.reading import read_number, read_whole
from gaudi_tune.define.search_space import SearchSpace, SpaceFunction
from gaudi_tune.training.class_loop import ClassLoop
from gaudi_tune.training.trial_config import PlainConfig, TrialConfig

if TYPE_CHECKING:
    from gaudi_tune.training.prediction import Predictor
    from gaudi_tune.training.session import TrainLoop

RecipeName: TypeAlias = Literal["full", "sample"]


CHECKPOINT = "{checkpoint}"
"""The placeholder for a checkpoint's folder in :attr:`Experiment.load_line`. Other braces there stay as they are."""
USUAL_BUDGET = Budget(epochs=10)
USUAL_SAMPLES = 20


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What the trials of an experiment train on, and how long."""

    settings: Callable[[], Mapping[str, Any]] = dict
    """A function that returns the settings of the train loop that differ from its defaults. It may create the data that
    they point to."""
    budget: Budget = USUAL_BUDGET
    """How long a trial trains if it is not stopped early."""
    num_samples: int = USUAL_SAMPLES
    """Trials in a sweep, the baseline included."""
    confirm: int = 0
    """How many of the best trials are trained again after the search, like the baseline: in full, with new seeds."""
    seeds: int = 4
    """Seeds for each of these. With 4, the best trial and the baseline take one round on the 8 devices of a node."""
    space: Mapping[str, Any] | SpaceFunction | SearchSpace | None = None
    """A search space for this recipe only. None: the experiment's."""
    baseline: Mapping[str, Any] | None = None
    """The first trial in that space."""

    @shown_plainly
    def __post_init__(self) -> None:
        if (self.space is None) != (self.baseline is None):
            raise SweepError("a recipe's space and baseline go together: give both, or neither")
        if not callable(self.settings):
            raise SweepError(
                f"a recipe's settings must be a function that returns them, but got {written(self.settings)}; give "
                f"settings=lambda: {{...}}"
            )
        if not isinstance(self.budget, Budget):
            raise SweepError(f"budget must be a Budget, such as Budget(epochs=10), but got {written(self.budget)}")
        check_count("num_samples", self.num_samples, least=1)
        check_count("confirm", self.confirm)
        check_count("seeds", self.seeds, least=2)

    def read_settings(self) -> dict[str, Any]:
        """Call the function of the settings, and return them.

        Raises:
            SweepError: The function fails, or does not return values by name.
        """
        try:
            settings = self.settings()
        except SweepError:
            raise
        except (Exception, SystemExit) as error:
            raise SweepError(f"the settings of the recipe failed: {users_error(error)}; fix it there") from error
        for name, value in check_names("the settings of the recipe", settings).items():
            check_plain_type(f"the settings of the recipe: {name}", value)
        return dict(settings)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A train loop and everything a sweep needs to tune it. The loop, a space and a metric are enough."""

    train_loop: TrainLoop
    """An ordinary Ray Train loop, which takes the configuration of a trial as a dict; or a class, a tune.Trainable."""
    space: Mapping[str, Any] | SpaceFunction | SearchSpace
    """The search space: ranges (of Optuna or Ray Tune) and constants by name, or a function of an Optuna trial."""
    metric: str = names.VAL_ACCURACY
    """The metric to improve, which the train loop reports."""
    mode: Mode | None = None
    """Whether more ("max") or less ("min") of ``metric`` is better. None: what the metric's name says, such as
    "val_loss" or "accuracy"; a name that does not say needs a mode."""
    budget: Budget = USUAL_BUDGET
    """How long a trial trains if it is not stopped early. A recipe may have another budget."""
    num_samples: int = USUAL_SAMPLES
    """Trials in a sweep, the baseline included. A recipe may have another number."""
    name: str = ""
    """Short name for sweeps and the MLflow experiment. Default: the name of the file with the train loop."""
    config_class: type[TrialConfig] = PlainConfig
    """The hyperparameters (fields without a default) and settings (fields with one) that the train loop knows.
    Default: those of the space and of the recipe's settings."""
    baseline: Mapping[str, Any] = field(default_factory=dict)
    """The published hyperparameters, which are always the first trial. Empty: there is nothing to compare with."""
    recipes: Mapping[RecipeName, Recipe] = field(default_factory=dict)
    """``full`` is the published recipe, ``sample`` a small one that needs no download. A single one serves as both."""
    check: Callable[[Any], list[str]] | None = None
    """A function that checks that data and model of the baseline's configuration can be used, and returns facts for the
    plan. It raises ValueError if a trial could not train. The first trial waits while its imports load."""
    load_line: str = ""
    """Python code that loads a checkpoint, with ``{checkpoint}`` for its folder."""
    predictor: Callable[[Path], Predictor] | None = None
    """A function of an importable module that turns the folder of a checkpoint into a model for MLflow, which predicts
    from raw input. None: MLflow gets only the checkpoint."""
    display_params: tuple[str, ...] = ()
    """The hyperparameters to show in lines and tables. Default: the first three of the space, eight if it branches."""
    per_worker: tuple[str, ...] = ()
    """Hyperparameters that ``space`` and ``baseline`` give per worker, such as a batch size that is published per
    device. A trial multiplies them by its number of workers."""
    scale_lr: bool = False
    """Whether ``lr`` is meant for the baseline's batch size and scales with the batch size of a trial. See
    ``lr_for_batch`` of :class:`~gaudi_tune.training.training_config.TrainingConfig`."""
    imports: Sequence[str] = ()
    """Modules that trials import and that take long to import. One process imports them while Ray starts, and all
    workers are forked from it. torch, and modules that the script imports itself, need not be named."""
    published: Published | None = None
    """The figures that the source of the baseline reports."""
    baselines: Mapping[str, OtherBaseline] = field(default_factory=dict)
    """Other published runs, by the names that ``--baseline`` takes."""

    @shown_plainly
    def __post_init__(self) -> None:
        Objective.of(self.metric, self.mode)  # raises if they are wrong
        object.__setattr__(self, "train_loop", _read_train_loop(self.train_loop))
        self._check_types()
        Recipe(budget=self.budget, num_samples=self.num_samples)  # raises if they are wrong
        object.__setattr__(self, "baseline", check_baseline(self.baseline, self.per_worker))
        if not self.name:
            object.__setattr__(self, "name", _name_of(self.train_loop))
        hyperparameters = self.baseline or (self.search_space.names if self.per_worker else {})
        if unknown := sorted(set(self.per_worker) - set(hyperparameters)):
            raise SweepError(f"per_worker must name hyperparameters of the baseline, but got {unknown}; leave them out")
        if self.scale_lr and "lr_for_batch" not in self.config_class.field_names():
            raise SweepError(
                f"scale_lr: {self.config_class.__name__} has no lr_for_batch; derive it from TrainingConfig"
            )
        unknown = sorted(set(self.display_params) - set(self.config_class.field_names()))
        if unknown and self.config_class is not PlainConfig:
            raise SweepError(
                f"display_params must name fields of {self.config_class.__name__}, but got {unknown}; leave them out"
            )
        module, name = getattr(self.predictor, "__module__", ""), getattr(self.predictor, "__qualname__", "")
        if self.predictor is not None and (module == "__main__" or not name.isidentifier()):
            raise SweepError(
                f"predictor must be a function of a module that others can import, but got {self.predictor}: MLflow "
                f"loads it without this script; put it into a file beside the script, and import it from there"
            )

    def _check_types(self) -> None:
        """Check each field by itself: a SweepError names the first that is wrong."""
        check_name("name", self.name)
        if not (isinstance(self.config_class, type) and issubclass(self.config_class, TrialConfig)):
            raise SweepError(
                f"config_class must be a class derived from TrialConfig, but got {written(self.config_class)}; derive "
                f"one, or leave it out"
            )
        if not isinstance(self.load_line, str):
            raise SweepError(
                f"load_line must be a line of Python with {CHECKPOINT} for the checkpoint's folder, but got "
                f"{written(self.load_line)}; give it as a text"
            )
        for field_name in ("display_params", "per_worker", "imports"):
            check_texts(field_name, getattr(self, field_name))
        for field_name in ("check", "predictor"):
            check_function(field_name, getattr(self, field_name))
        check_kind("scale_lr", self.scale_lr, bool, "True or False")
        check_kind("published", self.published, (Published, type(None)), "a Published(...)")
        check_values("recipes", self.recipes, Recipe, "Recipe(num_samples=20)", ("full", "sample"))
        check_values("baselines", self.baselines, OtherBaseline, "OtherBaseline(...)")

    def recipe(self, name: RecipeName | None, baseline: str | None = None) -> Recipe:
        """Return the recipe of this name. If there is none, it is the other recipe, or one with the experiment's own
        budget. If ``baseline`` names another published run, the full recipe has the budget of that run."""
        default = Recipe(budget=self.budget, num_samples=self.num_samples)
        recipe = self.recipes.get(name or "full", next(iter(self.recipes.values()), default))
        published_run = self.baselines.get(baseline or "")
        return recipe if published_run is None or name == "sample" else replace(recipe, budget=published_run.budget)

    @property
    def has_recipes(self) -> bool:
        """Whether there is more than one recipe to choose from."""
        return self.recipe("full") != self.recipe("sample")

    def for_recipe(self, recipe_name: RecipeName | None, workers: int, baseline: str | None = None) -> Experiment:
        """Return the experiment with the search space, baseline and known names that a recipe has.

        Args:
            recipe_name: The recipe.
            workers: How many workers train a trial.
            baseline: The name of another published run, which then is the baseline. The sample recipe takes the values
                that the run has for one worker.
        """
        recipe = self.recipe(recipe_name)
        if recipe.space is not None and recipe.baseline is not None:
            experiment = replace(self, space=recipe.space, baseline=recipe.baseline, per_worker=())
        else:
            multiplied = {name: workers * value for name, value in self.baseline.items() if name in self.per_worker}
            space = self.search_space.multiply(self.per_worker, workers)
            experiment = replace(self, space=space, baseline={**self.baseline, **multiplied}, per_worker=())
        published_run = self.baselines.get(baseline or "")
        if published_run is not None:
            space = experiment.search_space.fix(published_run.settings)
            values = published_run.values_for(1 if recipe_name == "sample" else workers)
            experiment = replace(experiment, space=space, baseline=values, published=published_run.published)
        space = experiment.search_space
        if experiment.config_class is PlainConfig:
            values_by_name = _known_values(space, recipe.read_settings())
            experiment = replace(experiment, config_class=PlainConfig.with_fields(values_by_name, space.always))
        if experiment.display_params:
            return experiment
        # In a space that branches, any hyperparameter may say which branch a trial is in.
        return replace(experiment, display_params=tuple(space.ranges)[: 8 if space.branches else 3])

    def config_with(self, settings: Mapping[str, Any]) -> TrialConfig:
        """Return the configuration of the baseline, or of any proposal without a baseline, with these settings.

        Raises:
            ValueError: The train loop does not take them.
        """
        return self.config_class.from_dict({**settings, **self.first_params})

    def read_value(self, name: str, value: Any) -> Any:
        """Return the value of a hyperparameter or a setting that a person gave, perhaps as text.

        Raises:
            ValueError: The value is of another type.
        """
        for choice in self.search_space.values(name):  # choices may be None, or of several types
            texts = {str(choice)}
            if isinstance(choice, bool):
                texts.add(str(choice).lower())  # as TOML writes it
            if str(value) in texts:
                return choice
        typed = self.config_class.typed(name, value)
        if isinstance(value, str) and isinstance(typed, int | float) and not isinstance(typed, bool):
            try:  # pydantic reads more than people write, such as 1_000 and nan
                return read_whole(value) if isinstance(typed, int) else read_number(value)
            except ValueError as error:
                raise ValueError(f"{name} {error}, but got {value!r}") from error
        return typed

    def read_config(self, settings: Mapping[str, Any], entries: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration of the search space from what a person entered.

        Args:
            settings: The settings of all trials.
            entries: Values by hyperparameter, numbers perhaps as text. An empty text is no value.

        Raises:
            SweepError: No trial could have this configuration.
        """
        space, words = self.search_space, self.search_space.in_words()
        entries = {name: value for name, value in entries.items() if value != ""}
        if unknown := sorted(set(entries) - set(words)):
            raise SweepError(f"{', '.join(unknown)}: no such hyperparameter is searched; there are {', '.join(words)}")
        if missing := sorted(space.always_searched - set(entries)):
            raise SweepError(f"{missing[0]}: every trial needs a value; give one in its range, {words[missing[0]]}")
        config: dict[str, Any] = {}
        for name, value in entries.items():
            try:
                config[name] = self.read_value(name, value)
            except ValueError as error:  # noqa: PERF203  (a few values)
                raise SweepError(f"{error}; its range is {words[name]}") from error
        for name in space.outside(config):
            example = format_value(middle(space.ranges[name][0]))
            raise SweepError(
                f"{name}={config[name]} is not in its range, {words[name]}; give a value inside, such as {example}"
            )
        draw = space.draw_with(config)
        if useless := sorted(set(config) - set(draw.ranges)):
            raise SweepError(f"{useless[0]}: the space asks for none with these other values; leave it empty")
        try:
            self.config_class.from_dict({**settings, **draw.config})
        except ValueError as error:
            raise SweepError(str(error)) from error
        return config

    @property
    def first_params(self) -> Mapping[str, Any]:
        """The hyperparameters and constants of the baseline, or of any proposal if there is no baseline."""
        return self.search_space.draw_with(self.baseline).config if self.baseline else self.search_space.example

    @cached_property
    def search_space(self) -> SearchSpace:
        """The space as a SearchSpace; a SweepError if it cannot be one."""
        return self.space if isinstance(self.space, SearchSpace) else SearchSpace(self.space)

    @property
    def objective(self) -> Objective:
        """The metric and its mode in one value, which also compares values."""
        return Objective.of(self.metric, self.mode)


def _known_values(space: SearchSpace, settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return values of each setting and hyperparameter of a plain train loop, which show their types."""
    values = {name: [value] for name, value in {**settings, **space.fixed}.items()}
    values |= {name: space.values(name) for name in sorted(space.names)}
    return values


def _read_train_loop(train_loop: Any) -> TrainLoop:
    """Return a train loop that can be called with a configuration; a ValueError says what is wrong."""
    if isinstance(train_loop, type):
        return _read_class(train_loop)
    _check_function(train_loop)
    return cast("TrainLoop", train_loop)


def _read_class(kind: type[Any]) -> TrainLoop:
    from ray.tune.trainable import Trainable  # here, since every command would wait for it
    from ray.tune.trainable.function_trainable import FunctionTrainable

    if not issubclass(kind, Trainable) or issubclass(kind, FunctionTrainable) or kind.step is Trainable.step:
        raise SweepError(
            f"train_loop must be a function of a configuration, or a class derived from ray.tune.Trainable with a "
            f"step(), but got the class {kind.__name__}; give one of these"
        )
    return ClassLoop(kind)


def _check_function(train_loop: Any) -> None:
    """Check that a function can be called with a configuration."""
    if not callable(train_loop):
        raise SweepError(
            f"train_loop must be a function of a configuration, but got {written(train_loop)}; give the function "
            f"itself, without calling it"
        )
    try:
        inspect.signature(train_loop, follow_wrapped=False).bind({})
    except TypeError as error:
        raise SweepError(
            f"train_loop must take one argument, the configuration of a trial, but {written(train_loop)} does not "
            f"({error}); give the others with functools.partial"
        ) from error
    except ValueError:
        pass  # some built-in functions have no signature
    except Exception as error:
        raise SweepError(
            f"train_loop must be a function of a configuration, but got {written(train_loop)}; give the function "
            f"itself, without calling it"
        ) from error
    if inspect.iscoroutinefunction(train_loop) or inspect.isgeneratorfunction(train_loop):
        raise SweepError(
            f"train_loop must be a plain function, but {written(train_loop)} is async, or yields; have it call report()"
        )


def _name_of(train_loop: TrainLoop) -> str:
    """Return an experiment's name: that of the file with its train loop, or in a notebook that of the function."""
    function = getattr(train_loop, "func", train_loop)  # unwraps a functools.partial
    module = getattr(function, "__module__", "__main__")
    if module not in ("__main__", "builtins"):  # builtins: code that exec() ran without a name
        return as_name(module.rpartition(".")[2])
    script = getattr(sys.modules["__main__"], "__file__", None)
    return as_name(Path(script).stem if script else getattr(function, "__name__", type(function).__name__))


def as_name(text: str) -> str:
    """Return a text, such as the name of a file, as a valid name of an experiment."""
    return re.sub(r"[^\w.-]+|^\W+", "-", text).strip("-")[:50] or "own"
