"""Numbers, texts and paths of options are read as people write them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaudi_tune import SweepError
from gaudi_tune.base.errors import LONGEST_TEXT, LONGEST_WORD, readable, written
from gaudi_tune.define.options import checked
from gaudi_tune.define.reading import read_path, read_text


@pytest.mark.parametrize("value", [20, 20.0, "20", " 20", "1_000", np.int64(3)])
def test_a_whole_number_may_be_written_in_several_ways(value: Any) -> None:
    assert checked({"num_samples": value}).num_samples == int(value)


@pytest.mark.parametrize("value", ["2.5", 2.5, "1e3", "0x10", "\u0663", "", "a", True, [5], math.nan, math.inf])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(SweepError, match=r"--num-samples .*: must be a (whole |finite )?number"):
        checked({"num_samples": value})


@pytest.mark.parametrize("value", ["nan", math.inf, "1e400", True, "x"])
def test_what_is_no_finite_number_is_refused(value: Any) -> None:
    with pytest.raises(SweepError, match=r"--target .*: must be a (finite )?number"):
        checked({"target": value})


def test_a_path_names_its_user_if_there_is_no_such_user() -> None:
    assert read_path("~/results") == Path("~/results")
    with pytest.raises(ValueError, match="must be a path, and there is no user ~nosuchuser"):
        read_path("~nosuchuser/x")
    with pytest.raises(ValueError, match="must be a path, such as results"):
        read_path("")


def test_an_error_shows_values_as_people_write_them() -> None:
    assert len(written("x" * 10**6)) < LONGEST_WORD + 4
    assert readable(f"got {written(object())}") == "got an object of the class object"
    assert readable("got np.float64(0.5)") == "got 0.5"
    assert len(readable("a b " * 2000)) <= LONGEST_TEXT


@pytest.mark.parametrize("wrong", [b"a", 5, None, "a\x1b[31m"])
def test_a_text_can_be_read(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"must (be a text|have no control characters)"):
        read_text(wrong)
