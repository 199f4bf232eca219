"""What a search space may be: the entries of a mapping, and what a function asks for and returns."""

from __future__ import annotations

from collections.abc import Mapping
from keyword import iskeyword
from numbers import Real
from typing import Any, NamedTuple
from unicodedata import normalize

from optuna.distributions import BaseDistribution

from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.define.ranges import WithPrior, check_range, convert_tune_range, is_range, plain


class Entries(NamedTuple):
    """The entries of a mapping."""

    ranges: dict[str, BaseDistribution]
    priors: dict[str, Any]
    constants: dict[str, Any]


class Draw(NamedTuple):
    """One configuration of a search space, and what the space asked for on the way."""

    config: dict[str, Any]
    """Hyperparameters by name, including constants."""
    ranges: dict[str, BaseDistribution]
    """The range of each hyperparameter that the space asked for; all others are constants."""
    study_names: dict[str, str]
    """The name that the study has for each of these hyperparameters."""
    priors: dict[str, Any]
    """The priors of those hyperparameters that have one."""
    answers: dict[str, Any]
    """The answer for each hyperparameter that the space asked for, also of those that are fixed."""
    returned: dict[str, Any]
    """What the function of the space returned."""


def read_entries(entries: Mapping[Any, Any]) -> Entries:
    """Return the ranges, the priors and the constants of a mapping.

    Raises:
        SweepError: Entries are wrong; the text names them all.
    """
    result = Entries({}, {}, {})
    problems = []
    for name, entry in entries.items():
        if problem := problem_of_name(name):
            problems.append(problem)
        value = entry.range if isinstance(entry, WithPrior) else plain(entry)
        if value is None or isinstance(value, str | Real):
            result.constants[name] = value
        elif isinstance(value, BaseDistribution):
            result.ranges[name] = value
        else:
            try:
                result.ranges[name] = convert_tune_range(name, value)
            except ValueError as error:
                problems.append(f"{name}: {error}")
        if isinstance(entry, WithPrior):
            result.priors[name] = plain(entry.prior)
    if problems:
        raise SweepError(f"the search space cannot be used: {'; '.join(problems)}")
    for name, range_ in result.ranges.items():
        check_range(name, range_, result.priors.get(name))
    return result


def problem_of_name(name: object) -> str:
    """Return why a hyperparameter cannot have this name; "" if it can."""
    if not isinstance(name, str):
        return f"{written(name)} is no name; give a text, such as 'lr'"
    if "." in name:
        flat_name = name.replace(".", "_")
        return (
            f"{name}: a name of a hyperparameter has no dot: give it another, such as {flat_name}, and have the train "
            f"loop read config[{flat_name!r}]"
        )
    if not name.isidentifier() or iskeyword(name) or normalize("NFKC", name) != name:  # as Python reads names
        return (
            f"{name}: a name must be that of a Python variable, and none of its keywords; take letters, digits and _, "
            f"such as 'weight_decay'"
        )
    return ""


def check_draw(draw: Draw) -> None:
    """Check what the function of a space asked for, and what it returned."""
    for name, range_ in draw.ranges.items():
        check_range(draw.study_names[name], range_, draw.priors.get(name))
    for name in {**draw.answers, **draw.returned}:
        if problem := problem_of_name(name):
            raise SweepError(f"the search space's {problem}")
    for name, value in draw.returned.items():
        if is_range(value):
            raise SweepError(
                f"the search space's function must return values, but returned a range for {name}; ask the trial "
                f"instead, for example trial.suggest_float({name!r}, 0.0, 1.0)"
            )
        if not isinstance(value, str | Real | None):
            raise SweepError(
                f"the search space's function must return numbers, texts, bools or None, but returned "
                f"{name}={written(value)}; make it in the train loop"
            )
        if name in draw.answers and value != draw.answers[name]:
            raise SweepError(
                f"the search space's function returned {name}={written(value)}, but it asked the trial for {name}, "
                f"which is {written(draw.answers[name])}; return the other value under another name"
            )
