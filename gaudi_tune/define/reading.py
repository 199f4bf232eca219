"""Reading what a user gives: values as people mean them, and pydantic's errors in our words.

A value comes as a text of a command line, from TOML, or from Python. Each function that reads one returns it, or raises
a ValueError with the rule, which pydantic reports beside the value.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, Strict, ValidationError

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
    "a valid integer": "a whole number",
    "a valid number": "a number",
    ", got a number with a fractional part": ", such as 20",
    ", unable to parse string as an integer": ", in digits such as 20",
    ", unable to parse string as a number": ", in digits such as 2.5",
    "a valid string": "a text",
    "Value error, ": "",
}
"""The words that replace pydantic's in messages."""
MOST = 10**9
"""The largest number of epochs, steps, seconds, trials and the like."""
UNREADABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
"""Control characters, invisible ones, and bytes that are not UTF-8."""


def read_number(value: Any) -> Any:
    """Return what may be a number: a switch is none, though Python takes True for 1."""
    if isinstance(value, bool) or not isinstance(value, str | Real):
        raise ValueError("must be a number")
    return value


def read_text(value: Any) -> Any:
    """Return a text that people can read."""
    if not isinstance(value, str):
        raise ValueError("must be a text")
    if UNREADABLE.search(value):
        raise ValueError("must have no control characters or other invisible ones, and be UTF-8")
    return str(value)


def read_texts(value: Any) -> Any:
    """Return several texts in their order, which a set has not, and a generator only once."""
    if not isinstance(value, list | tuple):
        raise ValueError("must be a tuple")
    return value


def read_path(value: Any) -> Any:
    """Return a path."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError("must be a path, such as results")
    path = Path(read_text(os.fspath(value)))
    try:
        path.expanduser()
    except RuntimeError:
        raise ValueError(f"must be a path, and there is no user {path.parts[0]}") from None
    return path


Whole: TypeAlias = Annotated[int, BeforeValidator(read_number)]
Count: TypeAlias = Annotated[Whole, Field(ge=0, le=MOST)]
Positive: TypeAlias = Annotated[Whole, Field(ge=1, le=MOST)]
TwoOrMore: TypeAlias = Annotated[Whole, Field(ge=2, le=MOST)]
Finite: TypeAlias = Annotated[float, BeforeValidator(read_number), Field(allow_inf_nan=False)]
AnyText: TypeAlias = Annotated[str, BeforeValidator(read_text)]
Text: TypeAlias = Annotated[str, Field(min_length=1), BeforeValidator(read_text)]
Texts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(read_texts)]
File: TypeAlias = Annotated[Path, BeforeValidator(read_path)]
Switch: TypeAlias = Annotated[bool, Strict()]


def rule_of(problem: Mapping[str, Any]) -> str:
    """Return the rule that a value breaks, in our words."""
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

    kind.__init__ = checked_init  # type: ignore[assignment, method-assign]
    return kind


def _in_words(kind: type[Any], problem: Mapping[str, Any]) -> str:
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, SweepError) or not problem["loc"]:  # of __post_init__, which names the field itself
        return str(cause)
    fields, place = kind.__pydantic_fields__, [str(part) for part in problem["loc"] if part != "[key]"]
    if problem["type"] == "unexpected_keyword_argument":
        return f"{kind.__name__} has no field {place[0]}{did_you_mean(place[0], list(fields))}"
    if problem["type"] == "unexpected_positional_argument":
        return f"{kind.__name__} takes its fields by name, such as {next(iter(fields))}=..."
    value = "" if problem["type"] == "missing" else f", but got {written(problem['input'])}"
    examples = fields[place[0]].examples
    fix = f"; give {place[0]}={examples[0]}" if examples else ""
    return f"{'.'.join(place)} {rule_of(problem)}{value}{fix}"


def takes_one_argument(function: Function) -> Function:
    """Return a function, if it can be called with one argument; a ValueError says why not."""
    try:
        inspect.signature(function, follow_wrapped=False).bind(None)
    except TypeError as error:
        raise ValueError(f"must take one argument ({error}); give the others with functools.partial") from error
    except ValueError:
        pass  # some built-in functions have no signature
    return function
