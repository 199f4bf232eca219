"""Batches of tokenized texts, and the lengths that they are padded to.

Each length compiles another graph, so there are few, chosen so that padding is least.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from gaudi_tune.data.held_out import Split
from gaudi_tune.recipes.loading import Batch

MOST_CANDIDATES = 512
"""How many lengths are tried. The time and memory of the search grow with its square: 25 ms and 2 MB for this many."""


class TokenizedTexts(Dataset[Any]):
    """The token ids of all texts of a split. They are memory-mapped, so that the workers of a node share one copy."""

    augments = False

    def __init__(self, folder: Path, split: Split, padded_lengths: int = 1) -> None:
        """Open a split.

        Args:
            folder: The folder of a :class:`TokenizedData`.
            split: Name of the split.
            padded_lengths: The most lengths that texts are padded to. 1: all are padded to ``max_length``.
        """
        self.input_ids = np.load(folder / f"{split}_input_ids.npy", mmap_mode="r")
        self.lengths = np.load(folder / f"{split}_lengths.npy")
        self.labels = np.load(folder / f"{split}_labels.npy")
        self.padded_to = padded_to(folder, self.lengths, padded_lengths, longest=self.input_ids.shape[1])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int], length: int | None = None) -> Batch:
        """Return ``input_ids`` and ``attention_mask`` of shape (n, length) and ``labels`` of shape (n,).

        ``length`` must be that of the longest text at least, and defaults to ``max_length``.
        """
        length = length or self.input_ids.shape[1]
        mask = np.arange(length)[None, :] < self.lengths[indices, None]
        return {
            "input_ids": torch.from_numpy(self.input_ids[indices, :length].astype(np.int64)),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "labels": torch.from_numpy(self.labels[indices]),
        }


def padded_to(folder: Path, lengths: npt.NDArray[np.int64], count: int, longest: int) -> npt.NDArray[np.int64] | None:
    """Return the length that each sample of a split is padded to, of shape (n,); None if all have the longest.

    Args:
        folder: The folder of the data, whose training texts decide.
        lengths: The number of tokens of each sample, of shape (n,).
        count: The most lengths that samples are padded to.
        longest: The most tokens of a sample.
    """
    if count == 1:
        return None
    allowed = [*best_lengths_of(folder, count)]
    if lengths.max(initial=0) > allowed[-1]:  # another split may have a longer text
        allowed[-1] = longest
    return padded(lengths, allowed)


@cache
def best_lengths_of(folder: Path, count: int) -> tuple[int, ...]:
    """Return the lengths for the training texts in a folder. A worker chooses them once, not for each trial."""
    return tuple(best_lengths(np.load(folder / "train_lengths.npy"), count))


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
