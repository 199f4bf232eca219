"""What a search space may be: the entries of a mapping, and what a function asks for and returns."""

from __future__ import annotations

from collections.abc import Mapping
from keyword import iskeyword
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

from optuna.distributions import BaseDistribution

from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.define.ranges import WithPrior, check_range, convert_tune_range, is_finite, is_range, plain

if TYPE_CHECKING:
    from gaudi_tune.define.search_space import Draw


class Entries(NamedTuple):
    """The entries of a mapping."""

    ranges: dict[str, BaseDistribution]
    priors: dict[str, Any]
    constants: dict[str, Any]


def is_variable(name: object) -> bool:
    """Whether a Python variable may have this name."""
    return isinstance(name, str) and name.isidentifier() and not iskeyword(name)


def read_entries(entries: Mapping[Any, Any]) -> Entries:
    """Return the ranges, the priors and the constants of a mapping.

    Raises:
        SweepError: Entries are wrong; the text names them all.
    """
    read = Entries({}, {}, {})
    problems = []
    for name, entry in entries.items():
        value = entry.range if isinstance(entry, WithPrior) else plain(entry)
        try:
            _check_name(name)
            if value is None or isinstance(value, str | Real):
                read.constants[name] = _checked_constant(value)
            else:
                read.ranges[name] = value if isinstance(value, BaseDistribution) else convert_tune_range(name, value)
        except ValueError as error:
            problems.append(f"{name}: {error}" if isinstance(name, str) else str(error))
        if isinstance(entry, WithPrior):
            read.priors[name] = plain(entry.prior)
    if problems:
        raise SweepError(f"the search space cannot be used: {'; '.join(problems)}")
    for name, range_ in read.ranges.items():
        check_range(name, range_, read.priors.get(name))
    return read


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise ValueError(f"{written(name)} is no name; give a text, such as 'lr'")
    if "." in name:
        underscored = name.replace(".", "_")
        raise ValueError(
            f"a name in a mapping has no dot: give it another, such as {underscored}, and have the train loop read "
            f"config[{underscored!r}]"
        )
    if not is_variable(name):
        raise ValueError(
            "a name must be that of a Python variable, and none of its keywords; take letters, digits and _, such as "
            "'weight_decay'"
        )


def _checked_constant(value: Any) -> Any:
    if isinstance(value, Real) and not is_finite(value):
        raise ValueError(f"a constant must be a finite number, but got {value}; give another")
    return value


def check_draw(draw: Draw) -> None:
    """Check what the function of a space asked for, and what it returned."""
    for name, range_ in draw.ranges.items():
        check_range(draw.study_names[name], range_, draw.priors.get(name))
    if strange := [name for name in {**draw.asked, **draw.returned} if not is_variable(name)]:
        raise SweepError(
            f"the search space cannot have the name {', '.join(map(repr, strange))}: names must be those of Python "
            f"variables, and none of its keywords; take letters, digits and _, such as 'weight_decay'"
        )
    for name, value in draw.returned.items():
        if is_range(value):
            raise SweepError(
                f"the search space's function must return values, but returned a range for {name}; ask the trial "
                f"instead, for example trial.suggest_float({name!r}, 0.0, 1.0)"
            )
        if not isinstance(value, str | Real | None) or (isinstance(value, Real) and not is_finite(value)):
            raise SweepError(
                f"the search space's function must return finite numbers, texts, bools or None, but returned "
                f"{name}={written(value)}; make it in the train loop"
            )
        if name in draw.asked and value != draw.asked[name]:
            raise SweepError(
                f"the search space's function returned {name}={written(value)}, but it asked the trial for {name}, "
                f"which is {written(draw.asked[name])}; return the other value under another name"
            )
