"""The values of a report as plain data, whatever a train loop reports.

Tune, the searcher, the files of a sweep and MLflow each fail in their own way at a value that they do not expect, and
some of them would take the sweep along. So nothing but these values leaves a worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from numbers import Integral, Real
from reprlib import repr as short_repr
from typing import Any

from gaudi_tune.base.errors import USER_CODE_ERRORS

MAX_TEXT = 10_000
"""Characters of a text that are kept."""
MAX_INTEGER = 2**63
"""Databases and JSON readers take integers below this one."""


def plain_report(metrics: Any) -> dict[str, Any]:
    """Return metrics as plain numbers and texts, which can be sent, compared and written.

    An integer of 64 bits or more becomes a float, infinite if it is beyond the largest one. Of a text, the first
    :data:`MAX_TEXT` characters are kept.

    Raises:
        ValueError: The metrics are not a mapping, a name is not a text, or a metric is neither a number nor a text.
    """
    if not isinstance(metrics, Mapping):
        raise ValueError(f"report() takes metrics by name, such as {{'loss': 0.5}}, but got {short_repr(metrics)}")
    return {_plain_name(name): _plain_value(name, value) for name, value in metrics.items()}


def _plain_name(name: Any) -> str:
    if not isinstance(name, str):
        shown = short_repr(name)
        raise ValueError(f"report(): the name of a metric must be a text, but is {shown}; name it '{shown}'")
    return _plain_text(name)


def _plain_value(name: str, value: Any) -> bool | int | float | str | None:
    try:
        if getattr(value, "ndim", None) == 0:  # a scalar of torch or numpy
            value = math.nan if getattr(value, "mask", False) else value.item()  # a masked one has no value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _plain_text(value)
        if isinstance(value, Integral) and abs(int(value)) < MAX_INTEGER:
            return int(value)
        if isinstance(value, Real | Decimal):
            return as_float(value)
        description = type(value).__name__
        if hasattr(value, "shape"):
            description += f" of shape {tuple(value.shape)}"
    except USER_CODE_ERRORS as error:
        raise ValueError(f"report(): the metric {name!r} cannot be read: {type(error).__name__}") from error
    raise ValueError(
        f"report(): the metric {name!r} must be a number or a text, but is a {description}; report one value each"
    )


def as_float(number: Any) -> float:
    """Return a number as a float; one beyond the largest float is infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _plain_text(text: str) -> str:
    """Return a text that every encoding takes, cut if it is very long."""
    shown = str.__str__(text[:MAX_TEXT]).encode(errors="replace").decode()
    return shown if len(text) <= MAX_TEXT else f"{shown} ... ({len(text)} characters)"
