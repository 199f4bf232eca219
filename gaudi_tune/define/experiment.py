"""What to tune: the Experiment, which each ``tune_<model>.py`` defines."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, PydanticUserError, TypeAdapter
from pydantic.dataclasses import dataclass

from gaudi_tune.base import names
from gaudi_tune.base.errors import USER_CODE_ERRORS, SweepError, users_error, written
from gaudi_tune.base.words import format_value
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Mode, Objective
from gaudi_tune.define.ranges import middle, plain
from gaudi_tune.define.reading import (
    FORBID,
    Count,
    Positive,
    Switch,
    Texts,
    TwoOrMore,
    takes_one_argument,
    with_our_errors,
)
from gaudi_tune.define.search_space import SearchSpace, SpaceFunction
from gaudi_tune.define.space_checks import problem_of_name
from gaudi_tune.define.trial_proxy import hyperparameter
from gaudi_tune.training.class_loop import ClassLoop
from gaudi_tune.training.prediction import Predictor
from gaudi_tune.training.session import TrainLoop
from gaudi_tune.training.trial_config import PlainConfig, TrialConfig

RecipeName: TypeAlias = Literal["full", "sample"]

CHECKPOINT = "{checkpoint}"
"""The placeholder for a checkpoint's folder in :attr:`Experiment.load_line`. Other braces there stay as they are."""
NAME = re.compile(r"\w[\w.-]{0,79}")
"""The names that an experiment may have: those of its sweeps begin with it."""
USUAL_BUDGET = Budget(epochs=10)
USUAL_SAMPLES = 20


def _read_train_loop(train_loop: Any) -> TrainLoop:
    """Return a train loop that can be called with a configuration."""
    if isinstance(train_loop, type):
        return _read_class(train_loop)
    if not callable(train_loop):
        raise ValueError("must be a function of a configuration, given without calling it")
    if inspect.iscoroutinefunction(train_loop) or inspect.isgeneratorfunction(train_loop):
        raise ValueError("must be a plain function that calls report(), and neither be async nor yield")
    return takes_one_argument(train_loop)


def _read_class(kind: type[Any]) -> TrainLoop:
    from ray.tune.trainable import Trainable  # here, since every command would wait for it
    from ray.tune.trainable.function_trainable import FunctionTrainable

    if not issubclass(kind, Trainable) or issubclass(kind, FunctionTrainable) or kind.step is Trainable.step:
        raise ValueError("must be a function of a configuration, or a class derived from tune.Trainable with a step()")
    return ClassLoop(kind)


def _check_space(space: Any) -> Any:
    if not isinstance(space, Mapping | SearchSpace) and not callable(space):
        raise ValueError(
            "must be ranges by name, such as {'lr': tune.loguniform(1e-4, 1e-1)}, or a function of an Optuna trial"
        )
    return space


def _read_baseline(baseline: Any) -> dict[str, Any]:
    """Return the values of a baseline, NumPy's numbers as Python's."""
    values = {name: plain(value) for name, value in _values_by_name(baseline).items()}
    for name, value in values.items():
        if not isinstance(value, str | Real | None):
            raise ValueError(f"must have numbers, texts, bools or None, and {name} is {written(value)}")
    return values


def _values_by_name(values: Any) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise ValueError("must be values by name, such as {'lr': 0.01}")
    for name in values:
        if problem := problem_of_name(name):
            raise ValueError(f"must be values by name, and {problem}")
    return values


def _check_name(name: str) -> str:
    if name and not NAME.fullmatch(name):
        raise ValueError(
            "must have 1 to 80 letters, digits, '.', '_' and '-', and begin with a letter or digit, such as 'my-model'"
        )
    return name


Space: TypeAlias = Annotated[Mapping[str, Any] | SpaceFunction | SearchSpace, PlainValidator(_check_space)]
Baseline: TypeAlias = Annotated[Mapping[str, Any], BeforeValidator(_read_baseline)]


@with_our_errors
@dataclass(frozen=True, kw_only=True, config=FORBID)
class Recipe:
    """What the trials of an experiment train on, and how long.

    >>> from gaudi_tune import Budget, Experiment, Recipe, tune
    >>> small = Recipe(settings=lambda: {"width": 8}, budget=Budget(epochs=3), num_samples=8)
    >>> large = Recipe(settings=lambda: {"width": 512}, budget=Budget(epochs=90, grace=5), num_samples=64, confirm=1)
    >>> def train_loop(config):  # a dict: width, lr, epochs, seed
    ...     ...
    >>> space = {"lr": tune.loguniform(1e-4, 1e-1)}
    >>> recipes = {"sample": small, "full": large}
    >>> experiment = Experiment(train_loop=train_loop, space=space, metric="loss", recipes=recipes)
    >>> experiment.recipe("sample").budget.rungs()  # trials are compared after their first epoch
    [1]
    """

    settings: Annotated[Callable[[], Mapping[str, Any]], Field(examples=["lambda: {...}"])] = dict
    """A function that returns the settings of the train loop that differ from its defaults. It may create the data that
    they point to."""
    budget: Annotated[Budget, Field(examples=["Budget(epochs=10)"])] = USUAL_BUDGET
    """How long a trial trains if it is not stopped early."""
    num_samples: Positive = USUAL_SAMPLES
    """Trials in a sweep, the baseline included."""
    confirm: Count = 0
    """How many of the best trials are trained again after the search, like the baseline: in full, with new seeds."""
    seeds: TwoOrMore = 4
    """Seeds for each of these. With 4, the best trial and the baseline take one round on the 8 devices of a node."""
    space: Space | None = None
    """A search space for this recipe only. None: the experiment's."""
    baseline: Baseline | None = None
    """The first trial in that space."""

    def __post_init__(self) -> None:
        if (self.space is None) != (self.baseline is None):
            raise SweepError("a recipe's space and baseline go together: give both, or neither")

    def read_settings(self) -> dict[str, Any]:
        """Call the function of the settings, and return them.

        Raises:
            SweepError: The function fails, or does not return values by name.
        """
        try:
            settings = self.settings()
        except SweepError:
            raise
        except USER_CODE_ERRORS as error:
            raise SweepError(f"the settings of the recipe failed: {users_error(error)}; fix it there") from error
        try:
            for value in _values_by_name(settings).values():
                TypeAdapter(type(value))
        except PydanticUserError as error:
            raise SweepError(
                f"the settings of the recipe must be plain data, but have {written(value)}; make it in the train loop"
            ) from error
        except ValueError as error:
            raise SweepError(f"the settings of the recipe {error}, but got {written(settings)}") from error
        return dict(settings)


@with_our_errors
@dataclass(frozen=True, kw_only=True, config=FORBID)
class Experiment:
    """A train loop and everything a sweep needs to tune it. The loop, a space and a metric are enough.

    >>> from gaudi_tune import Budget, Experiment, report, tune
    >>> def train_loop(config):  # a dict: lr, optimizer, epochs, seed
    ...     for epoch in range(1, config["epochs"] + 1):
    ...         report({"loss": abs(config["lr"] - 0.01) + 1 / epoch})  # train your epoch here
    >>> experiment = Experiment(
    ...     train_loop=train_loop,
    ...     space={"lr": tune.loguniform(1e-4, 1e-1), "optimizer": tune.choice(["sgd", "adamw"])},
    ...     metric="loss",
    ...     budget=Budget(epochs=5),
    ...     baseline={"lr": 0.01, "optimizer": "sgd"},
    ... )
    >>> print(experiment.objective)  # as the metric's name says
    min loss
    >>> experiment.search_space.in_words()["optimizer"]
    'one of sgd, adamw'
    """

    train_loop: Annotated[TrainLoop, BeforeValidator(_read_train_loop)]
    """An ordinary Ray Train loop, which takes the configuration of a trial as a dict; or a class, a tune.Trainable."""
    space: Space
    """The search space: ranges (of Optuna or Ray Tune) and constants by name, or a function of an Optuna trial."""
    metric: str = names.VAL_ACCURACY
    """The metric to improve, which the train loop reports."""
    mode: Mode | None = None
    """Whether more ("max") or less ("min") of ``metric`` is better. None: what the metric's name says, such as
    "val_loss" or "accuracy"; a name that does not say needs a mode."""
    budget: Annotated[Budget, Field(examples=["Budget(epochs=10)"])] = USUAL_BUDGET
    """How long a trial trains if it is not stopped early. A recipe may have another budget."""
    num_samples: Positive = USUAL_SAMPLES
    """Trials in a sweep, the baseline included. A recipe may have another number."""
    name: Annotated[str, AfterValidator(_check_name)] = ""
    """Short name for sweeps and the MLflow experiment. Default: the name of the file with the train loop."""
    config_class: type[TrialConfig] = PlainConfig
    """The hyperparameters (fields without a default) and settings (fields with one) that the train loop knows.
    Default: those of the space and of the recipe's settings."""
    baseline: Baseline = field(default_factory=dict)
    """The published hyperparameters, which are always the first trial. Empty: there is nothing to compare with."""
    recipes: Annotated[Mapping[RecipeName, Recipe], Field(examples=["{'full': Recipe(num_samples=20)}"])] = field(
        default_factory=dict
    )
    """``full`` is the published recipe, ``sample`` a small one that needs no download. A single one serves as both."""
    check: Annotated[Callable[[Any], list[str]], AfterValidator(takes_one_argument)] | None = None
    """A function that checks that data and model of the baseline's configuration can be used, and returns facts for the
    plan. It raises ValueError if a trial could not train. The first trial waits while its imports load."""
    load_line: str = ""
    """Python code that loads a checkpoint, with ``{checkpoint}`` for its folder."""
    predictor: Annotated[Callable[[Path], Predictor], AfterValidator(takes_one_argument)] | None = None
    """A function of an importable module that turns the folder of a checkpoint into a model for MLflow, which predicts
    from raw input. None: MLflow gets only the checkpoint."""
    display_params: Annotated[Texts, Field(examples=["('lr', 'batch_size')"])] = ()
    """The hyperparameters to show in lines and tables. Default: the first three of the space, eight if it branches."""
    per_worker: Annotated[Texts, Field(examples=["('batch_size',)"])] = ()
    """Hyperparameters that ``space`` and ``baseline`` give per worker, such as a batch size that is published per
    device. A trial multiplies them by its number of workers. Of a name with a dot, only the range is multiplied."""
    scale_lr: Switch = False
    """Whether ``lr`` is meant for the baseline's batch size and scales with the batch size of a trial. See
    ``lr_for_batch`` of :class:`~gaudi_tune.recipes.training_config.TrainingConfig`."""
    imports: Annotated[Texts, Field(examples=["('torchvision',)"])] = ()
    """Modules that trials import and that take long to import. One process imports them while Ray starts, and all
    workers are forked from it. torch, and modules that the script imports itself, need not be named."""

    def __post_init__(self) -> None:
        _ = self.objective  # raises if metric and mode are wrong
        if not self.name:
            object.__setattr__(self, "name", _name_of(self.train_loop))
        self._check_names()
        module, name = getattr(self.predictor, "__module__", ""), getattr(self.predictor, "__qualname__", "")
        if self.predictor is not None and (module == "__main__" or not name.isidentifier()):
            raise SweepError(
                f"predictor must be a function of a module that others can import, but got {self.predictor}: MLflow "
                f"loads it without this script; put it into a file beside the script, and import it from there"
            )

    def _check_names(self) -> None:
        """Check the names of hyperparameters that other fields have."""
        kind, fields = self.config_class.__name__, self.config_class.field_names()
        hyperparameters = self.baseline or (self.search_space.names if self.per_worker else {})
        unknown = sorted({*map(hyperparameter, self.per_worker)} - set(hyperparameters))
        if unknown:
            raise SweepError(f"per_worker must name hyperparameters of the baseline, but got {unknown}; leave them out")
        if self.scale_lr and "lr_for_batch" not in fields:
            raise SweepError(f"scale_lr: {kind} has no lr_for_batch; derive it from TrainingConfig")
        unknown = sorted(set(self.display_params) - set(fields))
        if unknown and self.config_class is not PlainConfig:
            raise SweepError(f"display_params must name fields of {kind}, but got {unknown}; leave them out")

    def recipe(self, name: RecipeName | None) -> Recipe:
        """Return the recipe of this name. If there is none, it is the other recipe, or one with the experiment's own
        budget."""
        default = Recipe(budget=self.budget, num_samples=self.num_samples)
        return self.recipes.get(name or "full", next(iter(self.recipes.values()), default))

    @property
    def has_recipes(self) -> bool:
        """Whether there is more than one recipe to choose from."""
        return self.recipe("full") != self.recipe("sample")

    def for_recipe(self, recipe_name: RecipeName | None, workers: int) -> Experiment:
        """Return the experiment with the search space, baseline and known names that a recipe has.

        Args:
            recipe_name: The recipe.
            workers: How many workers train a trial.
        """
        recipe = self.recipe(recipe_name)
        if recipe.space is not None and recipe.baseline is not None:
            experiment = replace(self, space=recipe.space, baseline=recipe.baseline, per_worker=())
        else:
            multiplied = {name: workers * value for name, value in self.baseline.items() if name in self.per_worker}
            space = self.search_space.multiply(self.per_worker, workers)
            experiment = replace(self, space=space, baseline={**self.baseline, **multiplied}, per_worker=())
        space = experiment.search_space
        if experiment.config_class is PlainConfig:
            # Values of each setting and hyperparameter, which show their types.
            values_by_name = {name: [value] for name, value in {**recipe.read_settings(), **space.fixed}.items()}
            values_by_name |= {name: space.values(name) for name in sorted(space.names)}
            if taken := sorted({*values_by_name} & {*dir(PlainConfig)} - {*PlainConfig.field_names()}):
                raise SweepError(f"{taken[0]}: this name is a trial's own; give it another, such as my_{taken[0]}")
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
        return self.config_class.typed(name, value)

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
        space = self.search_space
        return (space.draw_with(self.baseline) if self.baseline else space.draws[0]).config

    @cached_property
    def search_space(self) -> SearchSpace:
        """The space as a SearchSpace; a SweepError if it cannot be one."""
        return self.space if isinstance(self.space, SearchSpace) else SearchSpace(self.space)

    @property
    def objective(self) -> Objective:
        """The metric and its mode in one value, which also compares values."""
        return Objective.of(self.metric, self.mode)


def _name_of(train_loop: TrainLoop) -> str:
    """Return an experiment's name: that of the file with its train loop, or in a notebook that of the function."""
    function = getattr(train_loop, "func", train_loop)  # unwraps a functools.partial
    module = getattr(function, "__module__", "__main__")
    if module not in ("__main__", "builtins"):  # builtins: code that exec() ran without a name
        return as_name(module.rpartition(".")[2])
    script = getattr(function, "__globals__", {}).get("__file__")  # under a profiler another than that of __main__
    script = script or getattr(sys.modules["__main__"], "__file__", None)
    return name_of_script(script) if script else as_name(getattr(function, "__name__", type(function).__name__))


def name_of_script(script: str) -> str:
    """Return an experiment's name: that of its script, or of the folder or the archive with a ``__main__.py``."""
    path = Path(script)
    return as_name((path.parent if path.stem == "__main__" else path).stem)


def as_name(text: str) -> str:
    """Return a text, such as the name of a file, as a valid name of an experiment."""
    return re.sub(r"[^\w.-]+|^\W+", "-", text).strip("-")[:50] or "own"
