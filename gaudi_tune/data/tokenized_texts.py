"""Batches of tokenized texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from gaudi_tune.data.held_out import Split
from gaudi_tune.training.loading import Batch


class TokenizedTexts(Dataset[Any]):
    """The token ids of all texts of a split. They are memory-mapped, so that the workers of a node share one copy."""

    augments = False

    def __init__(self, folder: Path, split: Split) -> None:
        self.input_ids = np.load(folder / f"{split}_input_ids.npy", mmap_mode="r")
        self.lengths = np.load(folder / f"{split}_lengths.npy")
        self.labels = np.load(folder / f"{split}_labels.npy")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> Batch:
        """Return ``input_ids`` and ``attention_mask`` of shape (n, max_length) and ``labels`` of shape (n,)."""
        mask = np.arange(self.input_ids.shape[1])[None, :] < self.lengths[indices, None]
        return {
            "input_ids": torch.from_numpy(self.input_ids[indices].astype(np.int64)),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "labels": torch.from_numpy(self.labels[indices]),
        }
