"""The two commands of the first contact with a GPU fit into their time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.on_gpu.__main__ import END_S, HALF_S, HALVES, parts_on


@pytest.mark.parametrize("half", HALVES)
def test_a_half_ends_in_time_also_if_each_part_is_late(half: int) -> None:
    parts = parts_on("cuda", Path("sweeps"))
    assert sum(parts[name].limit_s + 3 * END_S for name in HALVES[half]) <= HALF_S
    assert {name for names in HALVES.values() for name in names} == set(parts)
