"""Pydantic's errors about what a user gives, in our words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from pydantic import ConfigDict, ValidationError

from gaudi_tune.base.errors import SweepError, shown_plainly, written
from gaudi_tune.base.words import did_you_mean

FORBID: ConfigDict = {"extra": "forbid"}
"""The configuration of a dataclass that takes no other fields than its own."""
Class = TypeVar("Class")
Function = TypeVar("Function", bound="Callable[..., Any]")

OUR_WORDS = {
    "Input should be": "must be",
    "String should": "must",
    "greater than or equal to": "at least",
    "greater than": "above",
    "less than or equal to": "at most",
    "less than": "below",
    "Field required": "must be given",
    "must be callable": "must be a function",
    "a valid boolean": "True or False",
    "a valid string": "a text",
    "Value error, ": "",
}
"""The words that replace pydantic's in messages."""


def message_of(problem: Mapping[str, Any]) -> str:
    """Return what pydantic says of a value, in our words."""
    message = str(problem["msg"])
    for theirs, ours in OUR_WORDS.items():
        message = message.replace(theirs, ours)
    return message


def with_our_errors(kind: type[Class]) -> type[Class]:
    """Have a dataclass of pydantic raise a SweepError that names each wrong field, its rule and its value."""
    init: Callable[..., None] = kind.__init__

    @shown_plainly
    @wraps(init)
    def checked_init(self: Class, *args: Any, **values: Any) -> None:
        try:
            init(self, *args, **values)
        except ValidationError as error:
            raise SweepError("; ".join(_in_words(kind, problem) for problem in error.errors())) from error

    type.__setattr__(kind, "__init__", checked_init)
    return kind


def _in_words(kind: type[Any], problem: Mapping[str, Any]) -> str:
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, SweepError):  # which says everything, in __post_init__ for example
        return str(cause)
    fields, place = kind.__pydantic_fields__, [str(part) for part in problem["loc"] if part != "[key]"]
    if problem["type"] == "unexpected_keyword_argument":
        return f"{kind.__name__} has no field {place[0]}{did_you_mean(place[0], list(fields))}"
    if problem["type"] == "unexpected_positional_argument":
        return f"{kind.__name__} takes its fields by name, such as {next(iter(fields))}=..."
    value = "" if problem["type"] == "missing" else f", but got {written(problem['input'])}"
    examples = fields[place[0]].examples
    fix = f"; give {place[0]}={examples[0]}" if examples else ""
    return f"{'.'.join(place)} {message_of(problem)}{value}{fix}"


def takes_one_argument(function: Function) -> Function:
    """Return a function, if it can be called with one argument; a ValueError says why not."""
    try:
        inspect.signature(function, follow_wrapped=False).bind(None)
    except TypeError as error:
        raise ValueError(f"must take one argument ({error}); give the others with functools.partial") from error
    except ValueError:
        pass  # some built-in functions have no signature
    return function
