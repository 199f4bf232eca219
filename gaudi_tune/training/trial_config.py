"""The configuration of a trial: a typed, frozen dataclass for each model, built from the dict that Tune passes."""

from __future__ import annotations

import copyreg
import dataclasses
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_type_hints

from pydantic import TypeAdapter, ValidationError
from typing_extensions import Self, override

if TYPE_CHECKING:
    from gaudi_tune.devices.device import DeviceType

Config = TypeVar("Config", bound="TrialConfig")

# A class from a script's __main__ or a notebook is sent to workers by value, with its fields. A field without a default
# has MISSING in its place, which is compared by identity: a copy of MISSING would count as a default.
copyreg.pickle(type(dataclasses.MISSING), lambda missing: "MISSING")


class ExecutionMode(NamedTuple):
    """How the operations of a model are run, and why."""

    name: Literal["compiled", "lazy", "eager"]
    """compiled: by torch.compile. lazy: collected into graphs by habana. eager: one by one."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class TrialConfig:
    """The budget, seed, data and model of any train loop. Each model's class adds its hyperparameters and settings.

    Fields without a default are hyperparameters, which the search space must have. Fields with a default are settings,
    which ``--set`` changes. A class may add rules to those of the budget, which are here.

    >>> from dataclasses import dataclass
    >>> from gaudi_tune import TrialConfig
    >>> @dataclass(frozen=True, kw_only=True)
    ... class LineConfig(TrialConfig):
    ...     lr: float
    ...     points: int = 64
    ...
    ...     def rules(self):
    ...         return super().rules() | {"lr must be above 0": self.lr > 0}
    >>> config = LineConfig.from_dict({"lr": 0.1, "epochs": 3})  # as the train loop gets it
    >>> config.lr, config.points, config.epochs
    (0.1, 64, 3)
    >>> LineConfig.from_dict({"lr": -1.0, "epochs": 3})
    Traceback (most recent call last):
    ValueError: lr must be above 0, but got -1.0...
    """

    divides_work: ClassVar[bool] = False
    """Whether the train loop is known to divide its data among the workers, and to keep to a budget in steps."""
    fractions: ClassVar[frozenset[str]] = frozenset()
    """The metrics that the train loop is known to report as fractions from 0 to 1."""
    paths: ClassVar[tuple[str, ...]] = ("data", "model")
    """The fields that may name local files."""

    epochs: int = 0
    """Passes over the training data, the budget of a full trial. 0 where the budget is in ``steps``."""
    steps: int = 0
    """Optimizer steps, the budget of a full trial. 0 where the budget is in ``epochs``."""
    eval_every: int = 0
    """Steps between two evaluations (and reports) where the budget is in ``steps``. 0 where it is in ``epochs``."""
    seed: int = 0
    """Seed of everything random in the trial: the same configuration gives the same numbers."""
    confirms: int = 0
    """The number of the trial that this one confirms: it trains the same configuration with another seed, and also
    reports the metrics of the test data. 0: it confirms none."""
    data: str = ""
    """A local file or folder, or a name on the hub."""
    model: str = ""
    """Local pretrained weights, or a name on the hub."""

    def rules(self) -> dict[str, bool]:
        """Return each rule in words, and whether the values keep it; subclasses add their rules.

        The error of a broken rule shows the values of all fields that the words name.
        """
        return {
            "epochs, steps and eval_every must not be negative": min(self.epochs, self.steps, self.eval_every) >= 0,
            "epochs or steps must be above 0, and the other 0": bool(self.epochs) != bool(self.steps),
            "eval_every needs a budget in steps, and must be from 1 to steps": (
                1 <= self.eval_every <= self.steps if self.steps else not self.eval_every
            ),
        }

    def __post_init__(self) -> None:
        broken = [f"{rule}, but got {self._values_in(rule)}" for rule, holds in self.rules().items() if not holds]
        if broken:
            raise ValueError("; ".join(broken))

    def _values_in(self, rule: str) -> str:
        names = [name for name in self.field_names() if re.search(rf"\b{name}\b", rule)]
        values = [repr(getattr(self, name)) for name in names]
        if len(names) == 1:
            return values[0]
        return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))

    def with_full_paths(self) -> Self:
        """Return a copy with full paths of local data and weights, since workers have another current folder."""
        full_paths = {name: _full_path(getattr(self, name)) for name in self.paths}
        return dataclasses.replace(self, **full_paths)  # type: ignore[arg-type]  # all are texts

    def mode_on(self, device: DeviceType) -> ExecutionMode | None:
        """Return how operations are run on this kind of device; None if only the train loop knows."""
        return None

    def for_device(self, device: DeviceType, cores: int = 1) -> Self:
        """Return the configuration with which trials train on this kind of device, on a host with so many cores for
        each worker.

        Raises:
            ValueError: The device does not support what the configuration requires.
        """
        return self

    def largest(self, values: Callable[[str], Iterable[Any]], workers: int) -> Self:
        """Return a copy that needs most memory and data of what a search space has, whose values of a hyperparameter
        ``values`` returns.

        Raises:
            ValueError: So many workers cannot share a batch of one of the sizes.
        """
        return self

    def worker_environment(self) -> dict[str, str]:
        """Return environment variables that a worker's process needs before it imports torch.

        A worker group is restarted for a trial whose variables differ from those it was started with.
        """
        return {}

    @classmethod
    def environment_of(cls, config: Mapping[str, Any]) -> dict[str, str]:
        """Return the environment variables of a worker for a trial with this configuration."""
        return cls.from_dict(config).worker_environment()

    def graph_signature(self, device: DeviceType, workers: int) -> dict[str, Any] | None:
        """Return everything that the compiled graphs of a trial depend on, by name.

        Trials with equal signatures share compiled graphs.

        Args:
            device: The kind of device that the trial trains on.
            workers: How many workers train the trial together.

        Returns:
            None if nothing is compiled, or if it is unknown what is.
        """
        return None

    @property
    def most_shapes(self) -> int:
        """The most shapes that a batch of this trial may have in its samples, each with graphs of its own."""
        return 1

    def why_not_wider(self, device: DeviceType, workers: int, wider: int) -> str | None:
        """Return why a trial must not move from ``workers`` to ``wider`` workers, such as that it would train worse.

        Returns:
            None if it computes the same, apart from random draws and the order of sums.
        """
        return "its train loop does not say that it computes the same"

    def why_not_exact(self, device: DeviceType, workers: int, wider: int) -> str | None:
        """Return why a trial may report other numbers if it moves from ``workers`` to ``wider`` workers.

        Returns:
            None if the numbers are the same, apart from the order of sums.
        """
        return self.why_not_wider(device, workers, wider)

    def settings_of_wider(self, device: DeviceType, workers: int, wider: int) -> dict[str, Any]:
        """Return the settings that must change if a trial moves to ``wider`` workers, to keep its numbers the same.

        Raises:
            ValueError: The batch cannot be split among so many workers.
        """
        return {}

    @classmethod
    def field_names(cls) -> list[str]:
        """Return the names of all fields."""
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def required_names(cls) -> list[str]:
        """Return the names of the fields without a default."""
        missing = dataclasses.MISSING
        return [f.name for f in dataclasses.fields(cls) if f.default is missing and f.default_factory is missing]

    @classmethod
    def resolve_types(cls) -> None:
        """Replace the names of types by the types themselves (``from __future__ import annotations`` leaves names).

        A process that gets the class by value does not have the module in which the names are defined.
        """
        types = get_type_hints(cls, include_extras=True)
        for field in dataclasses.fields(cls):
            field.type = types[field.name]

    @classmethod
    def typed(cls, name: str, value: object) -> Any:
        """Return a value converted to the type of a field.

        Raises:
            ValueError: It has another type.
        """
        try:
            return _field_checker(cls, name).validate_python(value)  # type: ignore[arg-type]  # classes are hashable
        except ValidationError as error:
            message = error.errors()[0]["msg"].replace("Input should be", "must be").partition(", unable to parse")[0]
            raise ValueError(f"{name} {message}, but got {value!r}") from error

    @classmethod
    def from_dict(cls: type[Config], config: Mapping[str, Any]) -> Config:
        """Check types and rules, and build the configuration.

        Raises:
            ValueError: Entries are wrong, missing or unknown; the message names them all.
        """
        problems = [f"{name!r} is not known" for name in config if name not in cls.field_names()]
        try:
            values = {name: value for name, value in config.items() if name in cls.field_names()}
            built: Config = _checker_of(cls).validate_python(values)  # type: ignore[arg-type]  # classes are hashable
        except ValidationError as error:
            problems += [_in_words(problem) for problem in error.errors()]
        if problems:
            names_are_wrong = any(problem.endswith(("is not known", "is missing")) for problem in problems)
            hint = f" It knows: {', '.join(cls.field_names())}." if names_are_wrong else ""
            raise ValueError(f"{'; '.join(problems)}.{hint}")
        return built


@dataclass(frozen=True, kw_only=True)
class PlainConfig(TrialConfig):
    """The configuration of a train loop without a class: its hyperparameters and settings, the seed and the budget."""

    @classmethod
    @override
    def environment_of(cls, config: Mapping[str, Any]) -> dict[str, str]:
        """Return no variables, and check nothing: a search space may use names that this class does not have."""
        return {}

    @classmethod
    def with_fields(cls, examples: Mapping[str, Iterable[Any]], required: Container[str]) -> type[PlainConfig]:
        """Return a class with more fields.

        Args:
            examples: Names of fields, each with values from which its type is taken.
            required: The names that every trial must have.
        """
        new_names = [name for name in examples if name not in cls.field_names()]
        types = {name: Union[tuple({type(value) for value in examples[name]})] for name in new_names}  # noqa: UP007
        fields: list[Any] = [(name, types[name]) for name in new_names if name in required]
        fields += [(name, types[name], dataclasses.field(default=None)) for name in new_names if name not in required]
        return dataclasses.make_dataclass(cls.__name__, fields, bases=(cls,), frozen=True, kw_only=True)


def _full_path(source: str) -> str:
    """Return the full path of a local file or folder. Other names, such as those on the hub, stay as they are."""
    try:
        return str(path.resolve()) if source and (path := Path(source).expanduser()).exists() else source
    except (OSError, RuntimeError) as error:  # no disk has such a name, or nobody here has such a folder
        raise ValueError(f"{source} is no path ({error}); give a file, a folder, or a name on the hub") from error


@lru_cache(maxsize=2)  # a worker makes the class of a script again for each trial
def _checker_of(config_class: type[Config]) -> TypeAdapter[Config]:
    """Return the checker of a class's types. Building one takes 2 ms, and each trial needs it twice."""
    return TypeAdapter(config_class)


@lru_cache(maxsize=100)  # a plan checks all values of a space, a thousand or more
def _field_checker(config_class: type[TrialConfig], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(config_class)[name])


def _in_words(problem: Mapping[str, Any]) -> str:
    field_name = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{field_name!r} is missing"
    return f"{field_name}={problem['input']!r}: {message}" if field_name else message
