from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from gaudi_tune.data.tokenized_texts import best_lengths, padded


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_other_lengths_need_less_padding(count: int) -> None:
    lengths = np.random.default_rng(0).geometric(0.2, size=60).clip(max=14)
    chosen = best_lengths(lengths, count)
    assert len(chosen) == count and chosen == sorted(chosen) and chosen[-1] == lengths.max()
    others = combinations(range(1, int(lengths.max())), count - 1)
    fewest = min(int(padded(lengths, [*shorter, int(lengths.max())]).sum()) for shorter in others)
    assert int(padded(lengths, chosen).sum()) == fewest
    assert (padded(lengths, chosen) >= lengths).all()


def test_there_are_no_more_lengths_than_texts_have() -> None:
    assert best_lengths(np.array([5, 5, 5]), 6) == [5]
    assert best_lengths(np.array([5, 2, 5, 9]), 6) == [2, 5, 9]


def test_texts_of_thousands_of_lengths_are_nearly_as_well_off() -> None:
    lengths = np.random.default_rng(1).integers(1, 8193, size=20_000)
    chosen = best_lengths(lengths, 6)
    assert len(chosen) == 6 and chosen[-1] == lengths.max()
    even = [int(lengths.max()) * part // 6 for part in range(1, 7)]  # the best lengths for evenly spread texts
    assert padded(lengths, chosen).sum() <= 1.005 * padded(lengths, even).sum()
