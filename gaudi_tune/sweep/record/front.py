"""Points are ranked by one or more objectives.

A point has a score for each objective, and more is better. One point dominates another if it is worse in no objective
and better in at least one. The front is the set of points that no other point dominates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Scores = Sequence[float]
"""A point: one score for each objective, more being better; all finite."""


def dominates(point: Scores, other_point: Scores) -> bool:
    """Whether a point dominates another."""
    is_worse_in_none = all(score >= other_score for score, other_score in zip(point, other_point, strict=True))
    return is_worse_in_none and tuple(point) != tuple(other_point)


def on_front(points: Sequence[Scores]) -> list[int]:
    """Return the places of the points that no other point dominates."""
    if not points:
        return []
    scores = np.array(points, dtype=float)
    if scores.shape[1] == 1:  # the matrix of all pairs of ten thousand trials would take 100 MB
        return np.flatnonzero(scores[:, 0] == scores.max()).tolist()
    return np.flatnonzero(~_dominates(scores).any(axis=0)).tolist()


def in_order(points: Sequence[Scores]) -> list[int]:
    """Return the places of all points, the best first.

    The front comes first, then the front of the remaining points, and so on. Within a front, the point that is best in
    the first objective comes first, followed each time by the point that is farthest from those before it. This is the
    epsilon-net of multi-objective ASHA (Schmucker et al., 2021). Distances are relative to the range of each objective
    on that front. Equal points keep their order.
    """
    if not points:
        return []
    scores = np.array(points, dtype=float)
    if scores.shape[1] == 1:  # as above
        return np.argsort(-scores[:, 0], kind="stable").tolist()
    pairs = _dominates(scores)
    dominators = pairs.sum(axis=0)  # of each point, among the remaining ones
    remaining, order = np.ones(len(scores), dtype=bool), list[int]()
    while remaining.any():
        front = np.flatnonzero(remaining & (dominators == 0))
        remaining[front] = False
        dominators = dominators - pairs[front].sum(axis=0)
        order += front[_spread(scores[front])].tolist()
    return order


def _dominates(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return whether each point dominates each other; (points, points)."""
    columns = scores.T
    worse_in_none = np.logical_and.reduce([np.greater_equal.outer(column, column) for column in columns])
    return np.asarray(worse_in_none & ~worse_in_none.T)


def _spread(scores: npt.NDArray[np.float64]) -> list[int]:
    """Return the places of the points of one front in their order."""
    ranges = np.ptp(scores, axis=0)
    scaled = (scores - scores.min(axis=0)) / np.where(ranges > 0, ranges, 1.0)
    order = [int(np.lexsort(-scores.T[::-1])[0])]  # best in the first objective, of equal ones in the next
    distances = np.linalg.norm(scaled - scaled[order[0]], axis=1)  # from each point to the nearest in the order
    distances[order[0]] = -1.0
    while len(order) < len(scores):
        order.append(int(distances.argmax()))
        distances = np.minimum(distances, np.linalg.norm(scaled - scaled[order[-1]], axis=1))
        distances[order] = -1.0
    return order
