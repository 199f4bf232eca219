"""Test data for data that has none: half of the validation data, which the search then never sees."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np


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
            f"half of the validation data is kept for the confirmation, and there are too few samples: {len(labels)}; "
            f"give more, or a separate test part, or --confirm 0"
        )
    by_class = np.argsort(labels, kind="stable")
    return np.sort(by_class[0::2] if part == "val" else by_class[1::2])
