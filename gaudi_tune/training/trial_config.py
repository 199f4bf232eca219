"""The configuration of a trial: a typed, frozen dataclass per model, made from the dict that Tune passes on."""

from __future__ import annotations

import copyreg
import dataclasses
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_type_hints

from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    from gaudi_tune.devices.device import DeviceType

Config = TypeVar("Config", bound="TrialConfig")

# A class of a script's __main__ or of a notebook is sent to workers by value, with its fields. What says "no default"
# in a field is compared by identity, so that a copy of it would be a default.
copyreg.pickle(type(dataclasses.MISSING), lambda missing: "MISSING")


@dataclass(frozen=True, kw_only=True)
class TrialConfig:
    """What every train loop gets: budget, seed, data and model. Each model's class adds hyperparameters and settings.

    The rules of a trial's budget are here and nowhere else.

    Fields without a default are hyperparameters that the search space must give; fields with one are settings.
    """

    epochs: int = 0
    """Passes over the training data, the budget of a full trial. 0 where the budget is in ``steps``."""
    steps: int = 0
    """Optimizer steps, the budget of a full trial. 0 where the budget is in ``epochs``."""
    eval_every: int = 0
    """Steps between two evaluations (and reports) where the budget is in ``steps``. 0 where it is in ``epochs``."""
    seed: int = 0
    """Seeds everything random in the trial: the same configuration gives the same numbers."""
    confirms: int = 0
    """The trial of the search whose configuration this one trains again, with another seed; its reports have the
    metrics of the test data, too. 0: it is a trial of the search."""
    data: str = ""
    """A local file or folder, or a name on the hub."""
    model: str = ""
    """Local pretrained weights, or a name on the hub."""

    def rules(self) -> dict[str, bool]:
        """Return each rule of the values in words, and whether it is kept; subclasses add theirs.

        An error adds the values of all fields that the words name.
        """
        return {
            "epochs, steps and eval_every must not be negative": min(self.epochs, self.steps, self.eval_every) >= 0,
            "epochs or steps must be above 0, and the other 0": bool(self.epochs) != bool(self.steps),
            "eval_every needs a budget in steps, and must be from 1 to steps": (
                1 <= self.eval_every <= self.steps if self.steps else not self.eval_every
            ),
        }

    def __post_init__(self) -> None:
        broken = [f"{rule}, but got {self._values_in(rule)}" for rule, kept in self.rules().items() if not kept]
        if broken:
            raise ValueError("; ".join(broken))

    def _values_in(self, rule: str) -> str:
        named = [name for name in self.field_names() if re.search(rf"\b{name}\b", rule)]
        values = [repr(getattr(self, name)) for name in named]
        return values[0] if len(named) == 1 else ", ".join(map("=".join, zip(named, values, strict=True)))

    def with_full_paths(self: Config) -> Config:
        """Return it with the full paths of local data and weights: workers have another current folder."""
        return dataclasses.replace(self, data=_full_path(self.data), model=_full_path(self.model))

    def worker_environment(self) -> dict[str, str]:
        """Return variables that a worker's process must have before it imports torch.

        A worker group starts again for a trial whose variables differ from those that it was started with.
        """
        return {}

    @classmethod
    def environment_of(cls, config: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of a worker for the trial with this configuration."""
        return cls.from_dict(config).worker_environment()

    def graph_signature(self, device: DeviceType, workers: int) -> dict[str, Any] | None:
        """Return what makes the graphs that are compiled for a trial others than another trial's, by name. Trials with
        equal signatures share compiled graphs.

        Args:
            device: What the trial trains on.
            workers: That train the trial together.

        Returns:
            None where nothing is compiled, or nobody knows what.
        """
        return None

    def why_not_wider(self, device: DeviceType, workers: int, wider: int) -> str | None:
        """Return why a trial that ``workers`` have trained may report other numbers if ``wider`` go on with it; None if
        they are the same but for the order of sums."""
        return "its train loop does not say that its numbers stay the same"

    def settings_of_wider(self, device: DeviceType, workers: int, wider: int) -> dict[str, Any]:
        """Return the settings that change if ``wider`` go on with it, so that its numbers stay the same where they can.

        Raises:
            ValueError: The batch cannot be split among so many.
        """
        return {}

    @classmethod
    def field_names(cls) -> list[str]:
        """Return every name that the train loop knows."""
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def required_names(cls) -> list[str]:
        """Return the names without a default."""
        missing = dataclasses.MISSING
        return [f.name for f in dataclasses.fields(cls) if f.default is missing and f.default_factory is missing]

    @classmethod
    def resolve_types(cls) -> None:
        """Put types in the place of their names (``from __future__ import annotations``).

        A process that gets the class by value does not have the module in which the names mean something.
        """
        types = get_type_hints(cls, include_extras=True)
        for field in dataclasses.fields(cls):
            field.type = types[field.name]

    @classmethod
    def typed(cls, name: str, value: object) -> Any:
        """Return a value as the field of this name has it; a ValueError where it is of another type."""
        try:
            return TypeAdapter(get_type_hints(cls)[name]).validate_python(value)
        except ValidationError as error:
            message = error.errors()[0]["msg"].replace("Input should be", "must be").partition(", unable to parse")[0]
            raise ValueError(f"{name} {message}, but got {value!r}") from error

    @classmethod
    def from_dict(cls: type[Config], config: Mapping[str, Any]) -> Config:
        """Check types and rules, and build the configuration.

        Raises:
            ValueError: Names every wrong, missing or unknown entry at once.
        """
        wrong = [f"{name!r} is not known" for name in config if name not in cls.field_names()]
        try:
            values = {name: value for name, value in config.items() if name in cls.field_names()}
            built: Config = _checker_of(cls).validate_python(values)  # type: ignore[arg-type]  # classes are hashable
        except ValidationError as error:
            wrong += [_in_words(problem) for problem in error.errors()]
        if wrong:
            names_are_wrong = any(said.endswith(("is not known", "is missing")) for said in wrong)
            known = f" It knows: {', '.join(cls.field_names())}." if names_are_wrong else ""
            raise ValueError(f"{'; '.join(wrong)}.{known}")
        return built


@dataclass(frozen=True, kw_only=True)
class PlainConfig(TrialConfig):
    """What a train loop without its class gets: its hyperparameters, its settings, ``seed`` and the budget."""

    @classmethod
    def environment_of(cls, config: Mapping[str, Any]) -> dict[str, str]:
        """Return no variables, whatever the configuration: a space may have a name that was not known in time."""
        return {}

    @classmethod
    def knowing(cls, values: Mapping[str, Iterable[Any]], needed: Container[str]) -> type[PlainConfig]:
        """Return a class that knows these names.

        Args:
            values: By name, values from which its type is taken.
            needed: The names that every trial must have.
        """
        own = [name for name in values if name not in cls.field_names()]
        types = {name: Union[tuple({type(value) for value in values[name]})] for name in own}  # noqa: UP007
        fields: list[Any] = [(name, types[name]) for name in own if name in needed]
        fields += [(name, types[name], dataclasses.field(default=None)) for name in own if name not in needed]
        return dataclasses.make_dataclass(cls.__name__, fields, bases=(cls,), frozen=True, kw_only=True)


def _full_path(source: str) -> str:
    """Return the full path of what is there; a name on the hub as it is."""
    path = Path(source).expanduser()
    return str(path.resolve()) if source and path.exists() else source


@cache
def _checker_of(config_class: type[Config]) -> TypeAdapter[Config]:
    """Return what checks the types of a class: to make it takes 2 ms, and each trial needs it twice."""
    return TypeAdapter(config_class)


def _in_words(problem: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{where!r} is missing"
    return f"{where}={problem['input']!r}: {message}" if where else message
