"""Parts of data that does not come in parts: validation data, and test data that the search then never sees."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

Split: TypeAlias = Literal["train", "val", "test"]
"""A part of the data."""
SHARE = 0.2
"""Of all rows: those that validate, where the data has no part for that."""


def rows_to_validate(labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a random share of the rows of each class, always the same, in their order; of rare classes none.

    Args:
        labels: The class of each row, shape (n,).
    """
    order = np.random.default_rng(0).permutation(len(labels))
    _, counts = np.unique(labels, return_counts=True)
    by_class = np.split(order[np.argsort(labels[order], kind="stable")], counts.cumsum()[:-1])
    return np.sort(np.concatenate([rows[: round(SHARE * len(rows))] for rows in by_class]))


def rows_of(part: Literal["val", "test"], labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the rows of the validation data that a part keeps: every other one of each class, in their order.

    Args:
        part: The test part is the smaller one where the number of rows is odd.
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
