"""The lengths that texts are padded to: few, since each is a graph of its own, and chosen so that padding is least."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def best_lengths(lengths: npt.NDArray[np.int64], count: int) -> list[int]:
    """Return at most ``count`` lengths, rising, with which padding is least if each text is padded to the next of them.

    It is found by dynamic programming over the lengths that occur, in O(count x longest^2).

    Args:
        lengths: The numbers of tokens of the texts, at least one.
        count: The most lengths that may be returned, at least 1.
    """
    texts_of = np.bincount(lengths)
    text_counts = np.cumsum(texts_of)  # texts of at most so many tokens
    longest = len(texts_of) - 1
    # tokens[n]: the fewest tokens, padding included, of all texts of at most n tokens, if n is the last length
    tokens = np.arange(longest + 1) * text_counts
    shorter_lengths: list[npt.NDArray[np.int64]] = []  # for each further length, the best one before it
    for _ in range(count - 1):
        # row: the last length; column: the one before it
        candidates = tokens[None, :] + np.arange(longest + 1)[:, None] * (text_counts[:, None] - text_counts[None, :])
        candidates[np.triu_indices(longest + 1)] = np.iinfo(np.int64).max
        candidates[:, 0] = np.arange(longest + 1) * text_counts  # no shorter length
        shorter_lengths.append(candidates.argmin(axis=1))
        tokens = candidates.min(axis=1)
    lengths_found, length = [longest], longest
    for shorter in reversed(shorter_lengths):
        length = int(shorter[length])
        if length == 0:
            break
        lengths_found.append(length)
    return lengths_found[::-1]


def padded(lengths: npt.NDArray[np.int64], allowed: list[int]) -> npt.NDArray[np.int64]:
    """Return for each length the next of the allowed ones, which rise and reach the longest."""
    return np.asarray(allowed)[np.searchsorted(allowed, lengths)]
