"""Numbers, texts and paths of options are read as people write them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gaudi_tune.base.errors import LONGEST_TEXT, LONGEST_WORD, readable, written
from gaudi_tune.define.reading import read_number, read_path, read_text, read_whole

NUMBER_LIKE = st.text(st.sampled_from("0123456789+-._eExX \u0663\uff15\u00b2nainfTrue"), max_size=12)


@given(st.one_of(st.text(), NUMBER_LIKE))
@example("1_000")
@example("\u0663")
@example("5\n")
@example("0x10")
def test_a_text_is_a_whole_number_only_in_ascii_digits(text: str) -> None:
    try:
        value = read_whole(text)
    except ValueError:
        assert not re.fullmatch("[+-]?[0-9]{1,30}", text)
    else:
        assert re.fullmatch(" *[+-]?[0-9]+ *", text) and value == int(text)


@given(st.one_of(st.text(), NUMBER_LIKE))
@example("1e400")
@example("nan")
@example("0e5")
def test_a_text_is_a_number_only_as_people_write_it(text: str) -> None:
    try:
        value = read_number(text)
    except ValueError:
        assert not re.fullmatch("[+-]?[0-9]+([.][0-9]+)?", text)
    else:
        assert text.isascii() and "_" not in text and value == float(text)


@given(st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), st.binary(), st.lists(st.integers())))
def test_a_value_of_python_is_a_number_if_it_is_one(value: object) -> None:
    is_number = type(value) in (int, float)
    try:
        number = read_number(value)
        assert isinstance(value, int | float)
        assert not math.isfinite(value) or number == float(value)
        assert is_number
    except ValueError:
        assert not is_number
    try:
        assert read_whole(value) == value and is_number
    except ValueError:
        assert not is_number or value != value or (isinstance(value, float) and not value.is_integer())


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
