"""Reading values as people mean them: from texts of a command line, from TOML, or from Python.

Each function returns the value or raises a ValueError with the rule, which pydantic reports beside the value. The types
are those of the fields that users give.
"""

from __future__ import annotations

import math
import os
import re
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, Strict

MOST = 10**9
"""The largest number of epochs, steps, seconds, trials and the like."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,5})?")
UNREADABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
"""Control characters, invisible ones, and bytes that are not UTF-8."""


def _is_number(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Real)


def read_whole(value: Any) -> Any:
    """Return a whole number: Python takes more for one, such as True, 1_000 and digits of every script."""
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip(" ")):
        return int(value)
    if _is_number(value) and math.isfinite(value) and value == int(value):
        return int(value)
    raise ValueError("must be a whole number, in digits such as 20")


def read_number(value: Any) -> Any:
    """Return a number."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip(" ")):
        return float(value)
    if _is_number(value):
        return float(value)
    raise ValueError("must be a number, in digits such as 2.5")


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


Whole: TypeAlias = Annotated[int, BeforeValidator(read_whole)]
Count: TypeAlias = Annotated[Whole, Field(ge=0, le=MOST)]
Positive: TypeAlias = Annotated[Whole, Field(ge=1, le=MOST)]
TwoOrMore: TypeAlias = Annotated[Whole, Field(ge=2, le=MOST)]
Finite: TypeAlias = Annotated[float, BeforeValidator(read_number), Field(allow_inf_nan=False)]
AnyText: TypeAlias = Annotated[str, BeforeValidator(read_text)]
Text: TypeAlias = Annotated[str, Field(min_length=1), BeforeValidator(read_text)]
Texts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(read_texts)]
File: TypeAlias = Annotated[Path, BeforeValidator(read_path)]
Switch: TypeAlias = Annotated[bool, Strict()]
