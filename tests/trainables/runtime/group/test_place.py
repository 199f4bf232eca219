"""Which devices a group tries after those that may not train together."""

from __future__ import annotations

import pytest

from trainables.runtime.group.place import leaves_next


@pytest.mark.parametrize(
    ("got", "leaves", "following"),
    [
        ([6, 0], 0, 1),  # 0 was left by another: 6 and 7 were meant
        ([3, 4, 5, 6], 2, 3),
        ([1, 4, 5, 6], 1, 2),
        ([1, 3], 0, 0),  # another has taken 2, and may leave it
    ],
)
def test_the_next_group_leaves_what_is_not_of_its_set(got: list[int], leaves: int, following: int) -> None:
    assert leaves_next(got, leaves) == following
