"""Splits data that has no validation or test part. A search never sees its test data."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias
from unicodedata import normalize

import numpy as np

Split: TypeAlias = Literal["train", "val", "test"]
"""A part of the data."""
VALIDATION_SHARE = 0.2
"""Share of all rows that becomes validation data, if the data has no part for that."""


def split_off(labels: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the rows to train on, and those that become validation data: a random share of each class, and none of
    rare classes. Both are in order, and the same for the same labels.

    Args:
        labels: The class of each row, shape (n,).
    """
    order = np.random.default_rng(0).permutation(len(labels))
    _, counts = np.unique(labels, return_counts=True)
    by_class = np.split(order[np.argsort(labels[order], kind="stable")], counts.cumsum()[:-1])
    to_validate = np.sort(np.concatenate([rows[: round(VALIDATION_SHARE * len(rows))] for rows in by_class]))
    return np.setdiff1d(np.arange(len(labels)), to_validate), to_validate


def rows_of(part: Literal["val", "test"], labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the rows of the validation data that belong to a part: every second row of each class, in order.

    Args:
        part: The part. If the number of rows is odd, the test part is the smaller one.
        labels: The class of each row, shape (n,).

    Raises:
        ValueError: There are too few rows for two parts.
    """
    if len(labels) < 2:
        raise ValueError(
            f"the confirmation needs half of the validation data, and there are too few samples: {len(labels)}; "
            f"give more, or a separate test part, or --confirm 0"
        )
    by_class = np.argsort(labels, kind="stable")
    return np.sort(by_class[0::2] if part == "val" else by_class[1::2])


def compared(text: str) -> str:
    """Return a text without what copies of it often differ in: white space, case, and how accents are written.

    >>> compared("A  good\\tfilm\\n")
    'a good film'
    """
    return " ".join(normalize("NFC", text).casefold().split())


def shared_samples(splits: Mapping[str, Sequence[Hashable]], kind: str) -> Iterator[str]:
    """Yield a remark on each split that has samples of another, which its scores should not depend on."""
    different_samples = {split: {*samples} for split, samples in splits.items()}
    for split, other in (("val", "train"), ("test", "train"), ("test", "val")):
        if common := sum(sample in different_samples.get(other, ()) for sample in splits.get(split, ())):
            yield f"{common} of {len(splits[split])} {kind} of {split} are the same as {kind} of {other}"
