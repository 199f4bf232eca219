"""Samples of tokenized texts for a language model: one text each, or several that share a fixed length."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from gaudi_tune.data.held_out import Split
from gaudi_tune.data.tokenized_texts import padded_to
from gaudi_tune.recipes.loading import Batch

IGNORED = -100
"""The label of a token that is not learned, as in torch and transformers."""


class PackedTexts(Dataset[Any]):
    """The samples of a split. Tokens are memory-mapped, so that the workers of a node share one copy."""

    augments = False

    def __init__(self, folder: Path, split: Split, max_length: int, packing: bool, padded_lengths: int = 1) -> None:
        """Open a split that :func:`write_texts` has written.

        Args:
            folder: Its folder.
            split: Its name.
            max_length: The most tokens of a sample.
            packing: Whether a sample may have several texts, with their own positions.
            padded_lengths: The most lengths that samples are padded to, without packing. 1: all have ``max_length``.
        """
        self._tokens = np.load(folder / f"{split}_tokens.npy", mmap_mode="r")
        self._answers = np.load(folder / f"{split}_answers.npy", mmap_mode="r")
        self._ends = np.load(folder / f"{split}_ends.npy")
        self._order, self._sample_ends = (np.load(folder / f"{split}_{name}.npy") for name in ("order", "sample_ends"))
        self.lengths = np.load(folder / f"{split}_lengths.npy")
        self._max_length, self._packing = max_length, packing
        self.padded_to = padded_to(folder, self.lengths, padded_lengths, longest=max_length)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitems__(self, indices: list[int], length: int | None = None) -> Batch:
        """Return ``input_ids`` and ``labels`` of shape (n, length), and where texts share a sample ``position_ids``.

        The label of a token is the token itself if it is in an answer, and :data:`IGNORED` otherwise. Padding is at the
        end, where no text sees it; its positions begin at 0.
        """
        length = length or self._max_length
        ids = np.zeros((len(indices), length), dtype=np.int64)
        labels = np.full_like(ids, IGNORED)
        positions = np.zeros_like(ids)
        for row, sample in enumerate(indices):
            start = 0
            for text in self._texts_of(sample):
                span = slice(self._ends[text - 1] if text else 0, self._ends[text])
                end = start + span.stop - span.start
                ids[row, start:end] = self._tokens[span]
                labels[row, start:end] = np.where(self._answers[span], self._tokens[span], IGNORED)
                positions[row, start:end] = np.arange(end - start)
                start = end
            positions[row, start:] = np.arange(length - start)
        arrays = {"input_ids": ids, "labels": labels, **({"position_ids": positions} if self._packing else {})}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _texts_of(self, sample: int) -> npt.NDArray[np.int64]:
        texts: npt.NDArray[np.int64] = self._order[
            self._sample_ends[sample - 1] if sample else 0 : self._sample_ends[sample]
        ]
        return texts


def packed(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Return which texts share a sample of at most ``size`` tokens, so that there are few samples.

    The longest comes first, and each goes where it leaves the least room (best fit decreasing). Texts are whole.

    >>> packed([3, 9, 6, 1, 4], size=10)
    [[1, 3], [2, 4], [0]]
    """
    samples: list[list[int]] = []
    room: list[tuple[int, int]] = []  # of each sample that is not full, in rising order, with its number
    for text in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        place = bisect_left(room, (lengths[text], 0))
        if place < len(room):
            left, sample = room.pop(place)
        else:
            left, sample = size, len(samples)
            samples.append([])
        samples[sample].append(text)
        if left > lengths[text]:
            insort(room, (left - lengths[text], sample))
    return samples


def write_texts(
    folder: Path,
    split: str,
    texts: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any]]],
    samples: Sequence[Sequence[int]] | None = None,
) -> tuple[int, int]:
    """Write the samples of a split, and return how many tokens they have, and how many of these are in answers.

    Args:
        folder: The folder for the files.
        split: The name of the split.
        texts: Each text's tokens, and which of them are in answers.
        samples: The texts of each sample; None if each text is one.
    """
    samples = [[number] for number in range(len(texts))] if samples is None else samples
    tokens, answers = (np.concatenate(parts) for parts in zip(*texts, strict=True))
    lengths = np.array([len(ids) for ids, _ in texts])
    arrays = {
        "tokens": tokens,
        "answers": answers,
        "ends": lengths.cumsum(),
        "order": np.concatenate([np.asarray(sample) for sample in samples]),
        "sample_ends": np.cumsum([len(sample) for sample in samples]),
        "lengths": np.array([lengths[list(sample)].sum() for sample in samples]),
    }
    for name, array in arrays.items():
        np.save(folder / f"{split}_{name}.npy", array)
    return len(tokens), int(answers.sum())
