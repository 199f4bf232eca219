"""Values that are nearly right: texts of numbers, objects of other types, and ways to change a value a little."""

from __future__ import annotations

import datetime
import math
from collections import OrderedDict, UserString, deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
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


class Level(IntEnum):
    """A whole number with a name."""

    LOW = 1
    HIGH = 2


class Hostile:
    """An object whose methods raise."""

    def __repr__(self) -> str:
        raise RuntimeError(MARK)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError(MARK)

    def __bool__(self) -> bool:
        raise RuntimeError(MARK)

    def __hash__(self) -> int:
        raise RuntimeError(MARK)


class Loud(str):
    """A text of a type of its own."""


def raising(*args: Any, **kwargs: Any) -> Any:
    """Raise the error of a user's own code."""
    raise ZeroDivisionError(MARK)


def generated() -> Iterator[str]:
    """Yield a text, once."""
    yield "lr=0.1"


def odd_value(random: Random) -> Any:
    """Return an object of a type that few inputs take."""
    return random.choice(ODD)()


ODD: list[Callable[[], Any]] = [
    lambda: None, lambda: True, lambda: False, lambda: 0, lambda: -1, lambda: 1, lambda: 3, lambda: 10**30,
    lambda: -(10**400), lambda: 0.0, lambda: -0.0, lambda: 0.5, lambda: 1.0, lambda: math.nan,
    lambda: math.inf, lambda: -math.inf, lambda: 1e308, lambda: 5e-324, lambda: 1j, lambda: "", lambda: " ",
    lambda: "lr", lambda: "nan", lambda: "None", lambda: "a" * 100_000, lambda: "\0", lambda: "a\nb",
    lambda: "\ud800", lambda: "é😀", lambda: "../..", lambda: "{checkpoint}", lambda: "%s %d", lambda: b"5",
    lambda: bytearray(b"x"), lambda: [], lambda: [1], lambda: ["lr"], lambda: [[1, 2], [3]], lambda: (),
    lambda: (1, 2), lambda: ("lr",), lambda: {}, lambda: {"lr": 0.1}, lambda: {1: 2}, lambda: {"a": {"b": 1}},
    lambda: {"lr": {"x": 0.1}}, lambda: set(), lambda: {"lr", "x"}, lambda: frozenset({1}), lambda: range(3),
    lambda: range(10**6), lambda: deque([1]), lambda: iter([1]), generated, lambda: generated, lambda: print,
    lambda: raising, lambda: lambda: None, lambda: int, lambda: dict, lambda: object, object, Hostile,
    lambda: Hostile, lambda: Loud("lr"), lambda: UserString("lr"), lambda: Colour.RED, lambda: Level.LOW,
    lambda: Decimal("0.1"), lambda: Decimal("nan"), lambda: Fraction(1, 3), lambda: Path("x"),
    lambda: datetime.date(2026, 1, 1), lambda: np.int64(3), lambda: np.float32(0.1), lambda: np.float64("nan"),
    lambda: np.bool_(True), lambda: np.str_("lr"), lambda: np.array(3), lambda: np.array([1.0, 2.0]),
    lambda: np.array([]), lambda: np.datetime64("2026-01-01"), lambda: OrderedDict(lr=1),
    lambda: NotImplemented, lambda: ..., lambda: slice(1, 2), lambda: memoryview(b"x"),
    lambda: ValueError("x"), lambda: ValueError,
]  # fmt: skip
"""Objects that few inputs take."""

TEXT_CHANGES: list[Callable[[str], str]] = [
    lambda text: f" {text}", lambda text: f"{text} ", lambda text: f"{text}\n", lambda text: f"\t{text}",
    lambda text: f"+{text}", lambda text: f"-{text}", lambda text: f"--{text}", lambda text: f"\u2212{text}",
    lambda text: f"{text}.0", lambda text: f"{text}.", lambda text: f"0{text}", lambda text: f"{text}_000",
    lambda text: f"{text},000", lambda text: f"0x{text}", lambda text: f"0b{text}", lambda text: f"{text}e3",
    lambda text: f"{text}e400", lambda text: f"{text}e-400", lambda text: f"{text}e", lambda text: f"{text}%",
    lambda text: f"{text}s", lambda text: f"{text}k", lambda text: f"{text}j", lambda text: f"{text}L",
    lambda text: f"'{text}'", lambda text: f'"{text}"', lambda text: f"[{text}]", lambda text: f"({text},)",
    lambda text: f"{{{text}}}", lambda text: f"={text}", lambda text: f"{text}=",
    lambda text: f"{text};{text}", lambda text: f"{text} {text}", lambda text: f"{text}:{text}",
    lambda text: f"{text}/", lambda text: f"/{text}", lambda text: f"~{text}", lambda text: f"${text}",
    lambda text: f"{text}\0", lambda text: f"{text}#", lambda text: text.upper(), lambda text: text.title(),
    lambda text: text[::-1], lambda text: text[:-1], lambda text: text * 2, lambda text: text * 3000,
    lambda text: "", lambda text: " ", lambda text: "nan", lambda text: "inf", lambda text: "True",
    lambda text: "None", lambda text: "null", lambda text: "-1", lambda text: "0", lambda text: "1e-9",
    lambda text: "9" * 30, lambda text: "9" * 5000, lambda text: "0.1", lambda text: "1/3", lambda text: "*",
    lambda text: "..", lambda text: text.translate({48 + digit: 0x660 + digit for digit in range(10)}),
    lambda text: text + "\u0663",
    lambda text: text.translate({48 + digit: 0xFF10 + digit for digit in range(10)}),
    lambda text: f"{text}\u00b2", lambda text: f"\u200b{text}", lambda text: f"{text}\xa0",
    lambda text: f"\ufeff{text}", lambda text: f"{text}\ud800", lambda text: f"\x1b[31m{text}",
    lambda text: f"{text}\u202e",
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
            lambda: np.int64(value), lambda: np.array([value]), lambda: Decimal(value),
            lambda: Fraction(value), lambda: complex(value), lambda: lambda: value, lambda: bool(value),
            lambda: math.nan, lambda: math.inf, lambda: {"value": value}, lambda: iter([value]),
        ]  # fmt: skip
        return random.choice(changes)()
    return odd_value(random)


def shown(value: Any, length: int = 200) -> str:
    """Return a value as text, also one whose ``repr`` raises."""
    try:
        text = ascii(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= length else f"{text[:length]}... ({len(text)} characters)"


PLAIN_ODD = ODD[:-7]
