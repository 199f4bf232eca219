"""The lengths that texts are padded to: few, since each compiles another graph, and chosen so that padding is least."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST_CANDIDATES = 512
"""How many lengths are tried. The time and memory of the search grow with its square: 25 ms and 2 MB for this many."""


def best_lengths(lengths: npt.NDArray[np.int64], count: int) -> list[int]:
    """Return at most ``count`` lengths, rising, with which padding is least if each text is padded to the next of them.

    It is found by dynamic programming over the lengths that occur. If these are more than :data:`MOST_CANDIDATES`, only
    so many of them are tried, spread evenly over the texts.

    Args:
        lengths: The numbers of tokens of the texts, at least one.
        count: The most lengths that may be returned, at least 1.
    """
    candidates = np.unique(lengths)
    if len(candidates) > MOST_CANDIDATES:
        shares = np.linspace(0, 1, MOST_CANDIDATES)
        candidates = np.unique(np.quantile(lengths, shares, method="higher"))
    texts_up_to = np.searchsorted(np.sort(lengths), candidates, side="right")
    alone = candidates * texts_up_to  # the tokens, padding included, of all texts up to a length that is the first
    tokens = alone  # the fewest tokens of all texts up to a length
    choices: list[npt.NDArray[np.int64]] = []  # the best length before each, by position; -1 for none
    for _ in range(count - 1):
        # row: the last length; column: the one before it
        costs = tokens[None, :] + candidates[:, None] * (texts_up_to[:, None] - texts_up_to[None, :])
        costs[np.triu_indices(len(candidates))] = np.iinfo(np.int64).max
        choices.append(np.where(costs.min(axis=1) < alone, costs.argmin(axis=1), -1))
        tokens = np.minimum(costs.min(axis=1), alone)
    position, best = len(candidates) - 1, [int(candidates[-1])]
    for choice in reversed(choices):
        position = int(choice[position])
        if position < 0:
            break
        best.append(int(candidates[position]))
    return best[::-1]


def padded(lengths: npt.NDArray[np.int64], allowed: list[int]) -> npt.NDArray[np.int64]:
    """Return for each length the next of the allowed ones, which rise and reach the longest."""
    return np.asarray(allowed)[np.searchsorted(allowed, lengths)]
