"""Batches of tokenized texts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from gaudi_tune.recipes.data.held_out import Split
from gaudi_tune.recipes.data.padding import best_lengths, padded
from gaudi_tune.recipes.loading import Batch


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
        self.padded_to: npt.NDArray[np.int64] | None = None
        """The length that each text is padded to in a batch of such texts, of shape (n,). None: ``max_length``."""
        if padded_lengths > 1:
            allowed = [*_best_lengths(folder, padded_lengths)]
            if self.lengths.max(initial=0) > allowed[-1]:  # another split may have a longer text
                allowed[-1] = self.input_ids.shape[1]
            self.padded_to = padded(self.lengths, allowed)

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


@cache
def _best_lengths(folder: Path, count: int) -> tuple[int, ...]:
    """Return the lengths for the training texts in a folder. A worker chooses them once, not for each trial."""
    return tuple(best_lengths(np.load(folder / "train_lengths.npy"), count))
