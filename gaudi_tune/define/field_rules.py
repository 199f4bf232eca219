"""Checks of single fields of an Experiment, a Recipe or a Budget. Each raises a SweepError that names the field."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from numbers import Real
from typing import Any
from unicodedata import normalize

from pydantic import TypeAdapter

from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.base.words import did_you_mean

MOST = 10**9
"""The largest number of epochs, steps, seconds, trials and the like."""
NAME = re.compile(r"\w[\w.-]{0,79}")
"""The names that an experiment may have: those of its sweeps begin with it."""


def plain(value: Any) -> Any:
    """Return a NumPy number as a Python number, an array as a list, and anything else unchanged."""
    return value.tolist() if hasattr(value, "tolist") and not isinstance(value, type) else value


def is_finite(number: Any) -> bool:
    """Whether a number is neither infinite nor NaN, and not above what a float can be."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def is_variable(name: object) -> bool:
    """Whether a Python variable may have this name, which Python would not change: it takes \ufb01 for fi."""
    return isinstance(name, str) and name.isidentifier() and not iskeyword(name) and normalize("NFKC", name) == name


def check_count(name: str, value: object, least: int = 0) -> None:
    """Check a whole number."""
    if type(value) is not int or not least <= value <= MOST:
        raise SweepError(
            f"{name} must be a whole number from {least} to {MOST:,}, but got {written(value)}; give one, such as "
            f"{name}={max(least, 10)}"
        )


def check_name(field: str, name: object) -> None:
    """Check the name of an experiment; "" leaves it to the file with the train loop."""
    if not isinstance(name, str) or (name and not NAME.fullmatch(name)):
        raise SweepError(
            f"{field} must have 1 to 80 letters, digits, '.', '_' and '-', and begin with a letter or digit, but got "
            f"{written(name)}; give one such as 'my-model'"
        )


def check_kind(field: str, value: object, kind: type | tuple[type, ...], example: str) -> None:
    """Check the type of a field."""
    if not isinstance(value, kind):
        raise SweepError(f"{field} must be {example}, but got {written(value)}; correct it, or leave it out")


def check_function(field: str, value: object) -> None:
    """Check a field that is a function of one argument, or None."""
    if value is None:
        return
    if not callable(value):
        raise SweepError(f"{field} must be a function, but got {written(value)}; give the function, or leave it out")
    try:
        inspect.signature(value).bind(None)
    except TypeError as error:
        raise SweepError(
            f"{field} must take one argument, but {written(value)} does not ({error}); give others by partial()"
        ) from error
    except ValueError:
        pass  # some built-in functions have no signature


def check_texts(field: str, value: object) -> None:
    """Check a field of several texts, which a single text or a generator is not."""
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        example = (value,) if isinstance(value, str) else ("lr", "batch_size")
        raise SweepError(f"{field} must be a tuple of texts, but got {written(value)}; give one, such as {example}")


def check_names(subject: str, values: object) -> Mapping[str, Any]:
    """Return values by name, after a check that they are."""
    if not isinstance(values, Mapping):
        raise SweepError(f"{subject} must be values by name, such as {{'lr': 0.01}}, but got {written(values)}")
    for name in values:
        if not is_variable(name):
            raise SweepError(
                f"{subject} must have names that are those of Python variables, but got {written(name)}; take letters, "
                f"digits and _, such as 'weight_decay'"
            )
    return values


def check_plain_type(subject: str, value: object) -> None:
    """Check that a value is of a type that a trial's configuration can check: plain data, paths and the like."""
    try:
        TypeAdapter(type(value))
    except Exception as error:  # pydantic has many
        raise SweepError(
            f"{subject} must be plain data, but got {written(value)}; make it in the train loop"
        ) from error


def check_values(field: str, values: object, kind: type, example: str, choices: Sequence[str] | None = None) -> None:
    """Check a field of values of one kind by name."""
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        key = (choices or ("mine",))[0]
        raise SweepError(f"{field} must be given by name, such as {{{key!r}: {example}}}, but got {written(values)}")
    for name, value in values.items():
        if choices is not None and name not in choices:
            raise SweepError(
                f"{field} may have {' and '.join(choices)}, but got {written(name)}{did_you_mean(name, choices)}; give "
                f"it one of these names"
            )
        check_kind(f"{field}[{name!r}]", value, kind, f"one such as {example}")


def check_baseline(baseline: object, per_worker: Sequence[str]) -> dict[str, Any]:
    """Return the values of a baseline, NumPy's numbers as Python's, after a check of them."""
    values = {name: plain(value) for name, value in check_names("baseline", baseline).items()}
    for name, value in values.items():
        if not isinstance(value, str | Real | None):
            raise SweepError(
                f"baseline must have numbers, texts, bools or None, but got {name}={written(value)}; give the value of "
                f"the first trial"
            )
        if name in per_worker and (isinstance(value, bool) or not isinstance(value, Real)):
            raise SweepError(f"per_worker multiplies {name}, which must be a number, but got {written(value)}")
    return values
