"""Whatever a loop reports becomes plain data, or an error of its trial that names the metric."""

from __future__ import annotations

import json
import math
import pickle
import threading
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from gaudi_tune.training.report_values import MAX_TEXT, plain_report


class Color(str, Enum):
    """A text that is an object, too."""

    RED = "red"


class Level(IntEnum):
    """A number that is an object, too."""

    HIGH = 3


class Odd:
    """An object whose every method raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __float__ = __reduce__ = __eq__ = __repr__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    @property
    def ndim(self) -> int:
        """Raise, as all of it does."""
        raise RuntimeError("no ndim")


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (10**400, math.inf), (-(10**400), -math.inf), (2**63, float(2**63)), (2**63 - 1, 2**63 - 1),
        pytest.param(10**5000, math.inf, id="5,000 digits"), (torch.tensor(True), True), (np.array(3), 3),
        (Fraction(1, 4), 0.25), (Fraction(10**400), math.inf), (Decimal("0.5"), 0.5), (Decimal("-1e999"), -math.inf),
        (np.bool_(True), True), (np.uint64(2**64 - 1), float(2**64 - 1)), (np.float16(0.5), 0.5),
        (np.longdouble("1e4000"), math.inf), (np.str_("a"), "a"), (np.array(None, dtype=object), None),
        (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
        (torch.tensor(0.5).to(torch.float8_e4m3fn), 0.5), (Color.RED, "red"), (Level.HIGH, 3), (None, None),
        ("half \ud800", "half ?"), ("", ""),
    ],
)  # fmt: skip
def test_a_value_becomes_a_plain_one(value: Any, plain: Any) -> None:
    kept = plain_report({"metric": value})["metric"]
    assert kept == plain
    assert type(kept) is type(plain)
    json.dumps(kept)
    pickle.dumps(kept)


@pytest.mark.parametrize("value", [math.nan, Decimal("nan"), np.float32("nan"), np.ma.masked])
def test_a_missing_value_is_nan(value: Any) -> None:
    assert math.isnan(plain_report({"loss": value})["loss"])


@pytest.mark.parametrize(
    "value",
    [
        1j, np.complex64(1), torch.tensor(1j), b"1", [1], CYCLE, {"loss": 1}, {1}, (number for number in [1]), object(),
        Odd(), Color, threading.Lock(), np.array([1.0]), np.array({}, dtype=object), torch.empty((), device="meta"),
    ],
)  # fmt: skip
def test_any_other_value_is_an_error_that_names_the_metric(value: Any) -> None:
    with pytest.raises(ValueError, match=r"report\(\): the metric 'odd' (must be a number or a text|cannot be read)"):
        plain_report({"odd": value})


def test_a_long_text_is_cut() -> None:
    assert plain_report({"text": "x" * 10_000_000})["text"] == "x" * MAX_TEXT + " ... (10000000 characters)"


@pytest.mark.parametrize("name", [Odd(), 3, None, ("a",), b"a"])
def test_a_name_that_is_no_text_is_an_error(name: Any) -> None:
    class Pairs(dict[Any, Any]):
        def items(self) -> Any:
            return [(name, 1)]

    with pytest.raises(ValueError, match="the name of a metric must be a text, but is "):
        plain_report(Pairs())


def test_a_report_that_has_no_names_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"by name, such as .*, but got <Odd instance"):
        plain_report(Odd())
