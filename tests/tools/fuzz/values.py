"""Values that are nearly right: texts of numbers, objects of other types, and ways to change a value a little."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

MARK = "raised on purpose"
"""The text of errors that a user's own code raises here."""


class Colour(Enum):
    """Choices that no database can hold."""

    RED = "red"
    BLUE = "blue"


def raising(*args: Any, **kwargs: Any) -> Any:
    """Raise the error of a user's own code."""
    raise ZeroDivisionError(MARK)


def odd_value(random: Random) -> Any:
    """Return an object of a type that few inputs take."""
    return random.choice(ODD)()


ODD: list[Callable[[], Any]] = [
    lambda: None, lambda: True, lambda: False, lambda: 0, lambda: -1, lambda: 1, lambda: 3, lambda: 10**30,
    lambda: 0.0, lambda: 0.5, lambda: 1.0, lambda: math.nan, lambda: math.inf, lambda: 1e308, lambda: "",
    lambda: " ", lambda: "lr", lambda: "nan", lambda: "None", lambda: "../..", lambda: "{checkpoint}", lambda: b"5",
    lambda: [], lambda: [1], lambda: ["lr"], lambda: [[1, 2], [3]], lambda: (), lambda: (1, 2), lambda: ("lr",),
    lambda: {}, lambda: {"lr": 0.1}, lambda: {1: 2}, lambda: {"a": {"b": 1}}, lambda: set(), lambda: {"lr", "x"},
    lambda: range(3), lambda: iter(["lr=0.1"]), lambda: print, lambda: raising, lambda: lambda: None, lambda: int,
    lambda: dict, object, lambda: Colour.RED, lambda: Decimal("0.1"), lambda: Path("x"), lambda: np.int64(3),
    lambda: np.float32(0.1), lambda: np.bool_(True), lambda: np.str_("lr"), lambda: np.array([1.0, 2.0]),
    lambda: ValueError("x"),
]  # fmt: skip
"""Objects that few inputs take."""

TEXT_CHANGES: list[Callable[[str], str]] = [
    lambda text: f" {text}", lambda text: f"{text} ", lambda text: f"+{text}", lambda text: f"-{text}",
    lambda text: f"--{text}", lambda text: f"{text}.0", lambda text: f"{text}.", lambda text: f"0{text}",
    lambda text: f"{text}_000", lambda text: f"{text},000", lambda text: f"0x{text}", lambda text: f"{text}e3",
    lambda text: f"{text}e400", lambda text: f"{text}e", lambda text: f"{text}%", lambda text: f"{text}s",
    lambda text: f"{text}k", lambda text: f"'{text}'", lambda text: f'"{text}"', lambda text: f"[{text}]",
    lambda text: f"({text},)", lambda text: f"={text}", lambda text: f"{text}=", lambda text: f"{text},{text}",
    lambda text: f"{text} {text}", lambda text: f"{text}:{text}", lambda text: f"{text}/", lambda text: f"/{text}",
    lambda text: f"~{text}", lambda text: f"${text}", lambda text: text.upper(), lambda text: text.title(),
    lambda text: text[::-1], lambda text: text[:-1], lambda text: text * 2, lambda text: "", lambda text: " ",
    lambda text: "nan", lambda text: "inf", lambda text: "True", lambda text: "None", lambda text: "null",
    lambda text: "-1", lambda text: "0", lambda text: "1e-9", lambda text: "9" * 30, lambda text: "0.1",
    lambda text: "1/3", lambda text: "*", lambda text: "..",
]  # fmt: skip
"""Ways to change a text a little."""


def changed_text(text: str, random: Random) -> str:
    """Return a text with a change, and sometimes with two."""
    for _ in range(random.choice((1, 1, 1, 2))):
        text = random.choice(TEXT_CHANGES)(text)
    return text


def changed(value: Any, random: Random) -> Any:
    """Return something like a value: of another type, in a container, of another sign, or as a text."""
    if isinstance(value, str):
        return random.choice((lambda: changed_text(value, random), lambda: odd_value(random)))()
    if isinstance(value, int | float):
        changes: list[Callable[[], Any]] = [
            lambda: str(value), lambda: changed_text(str(value), random), lambda: -value, lambda: [value],
            lambda: (value,), lambda: float(value), lambda: value * 10**9, lambda: np.float32(value),
            lambda: np.int64(value), lambda: np.array([value]), lambda: lambda: value, lambda: bool(value),
            lambda: math.nan, lambda: math.inf, lambda: {"value": value},
        ]  # fmt: skip
        return random.choice(changes)()
    return odd_value(random)


def shown(value: Any, length: int = 200) -> str:
    """Return a value as text, not too long."""
    text = ascii(value)
    return text if len(text) <= length else f"{text[:length]}... ({len(text)} characters)"
