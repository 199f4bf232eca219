"""Which of many points are on the front, and which come first. Of one objective that is which are the best.

A point has a score for each objective, more being better. One dominates another if it is worse in none, and better in
one. The front are those that none dominates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Scores = Sequence[float]
"""A point: one score for each objective, more being better; all finite."""


def dominates(one: Scores, other: Scores) -> bool:
    """Whether one point dominates another."""
    return all(mine >= theirs for mine, theirs in zip(one, other, strict=True)) and tuple(one) != tuple(other)


def on_front(points: Sequence[Scores]) -> list[int]:
    """Return the places of the points that no other dominates."""
    if points and len(points[0]) == 1:  # without a matrix of all pairs
        values = np.array(points, dtype=float)[:, 0]
        return np.flatnonzero(values == values.max()).tolist()
    return np.flatnonzero(~_dominates(np.array(points, dtype=float)).any(axis=0)).tolist() if points else []


def in_order(points: Sequence[Scores]) -> list[int]:
    """Return the places of all points, the best first.

    The front comes first, then the front of those that are left, and so on. Of one front, the point comes first that is
    best in the first objective, and then each time the one that is farthest from those taken: an epsilon-net, as in
    multi-objective ASHA (Schmucker et al., 2021). Distances are shares of what the objectives span on that front.
    """
    if not points:
        return []
    values = np.array(points, dtype=float)
    if values.shape[1] == 1:  # likewise
        return np.argsort(-values[:, 0], kind="stable").tolist()
    pairs = _dominates(values)
    by, left, found = pairs.sum(axis=0), np.ones(len(values), dtype=bool), list[int]()
    while left.any():
        front = np.flatnonzero(left & (by == 0))
        left[front], by = False, by - pairs[front].sum(axis=0)
        found += front[_spread(values[front])].tolist()
    return found


def _dominates(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return whether each point dominates each other; (points, points)."""
    columns = values.T
    worse_in_none = np.logical_and.reduce([np.greater_equal.outer(column, column) for column in columns])
    return np.asarray(worse_in_none & ~worse_in_none.T)


def _spread(values: npt.NDArray[np.float64]) -> list[int]:
    """Return the places of the points of one front in their order."""
    spans = np.ptp(values, axis=0)
    scaled = (values - values.min(axis=0)) / np.where(spans > 0, spans, 1.0)
    taken = [int(np.lexsort(-values.T[::-1])[0])]  # best in the first objective, of equal ones in the next
    nearest = np.linalg.norm(scaled - scaled[taken[0]], axis=1)
    nearest[taken[0]] = -1.0
    while len(taken) < len(values):
        taken.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.linalg.norm(scaled - scaled[taken[-1]], axis=1))
        nearest[taken] = -1.0
    return taken
