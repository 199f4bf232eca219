"""Values that JSON gives back as they were."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from gaudi_tune.sweep.record.plain_json import from_json_form, json_form

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
KEYS = st.text() | st.integers() | st.booleans() | st.sampled_from(["$tuple", "$dict", "$bytes"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner) | st.sets(st.integers(), max_size=1)
    ),
    max_leaves=20,
)


def there_and_back(value: Any) -> Any:
    return json.loads(json.dumps(json_form(value)), object_hook=from_json_form(load_objects=True))


@settings(deadline=None)
@given(VALUES)
def test_any_value_comes_back_with_its_types_and_every_bit_of_its_numbers(value: Any) -> None:
    assert repr(there_and_back(value)) == repr(value)  # NaN differs from itself, and 1 equals True


def test_numbers_that_json_does_not_have_come_back() -> None:
    assert there_and_back({"a": [math.inf, -math.inf, -0.0]}) == {"a": [math.inf, -math.inf, -0.0]}
    assert math.isnan(there_and_back((math.nan, 0.1 + 0.2))[0])


def test_a_dictionary_of_another_class_comes_back_as_a_plain_one() -> None:
    assert there_and_back(Counter("aab")) == {"a": 2, "b": 1}
