"""What a learning curve that is not complete promises: its best value so far, moved to the full budget."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

Curve: TypeAlias = Mapping[int, float]
"""Finite values of the objective by epoch or step."""
Mode: TypeAlias = Literal["min", "max"]

CLOSEST = 1e-4
"""How near to 0 and 1 a share is told apart from them."""
LEAST = 1e-12
"""What a loss of 0 is taken for, which has no logarithm."""


@dataclass(frozen=True)
class Scale:
    """How values are transformed before differences between them are taken."""

    forth: Callable[[float], float]
    back: Callable[[float], float]


def scale_of(values: Sequence[float], mode: Mode) -> Scale:
    """Return the scale on which progress of good and of weak trials is about the same.

    Losses and error rates (none below 0, less is better) fall by factors: their logarithms. Accuracies (from 0 to 1,
    more is better) approach 1: their log odds, so that what is left falls by factors. Of anything else nothing is
    known, and the values themselves are taken.
    """
    if all(0 <= value <= 1 for value in values) and mode == "max":
        return Scale(_log_odds, _share)
    if all(value >= 0 for value in values) and mode == "min":
        return Scale(lambda value: math.log(max(value, LEAST)), math.exp)
    return Scale(float, float)


def extrapolate(curves: Sequence[Curve], mode: Mode, levels: Sequence[int]) -> list[float | None]:
    """Return for each curve the best value to expect of it at the full budget; None for a curve without values.

    From one level to the next the best value changes by the median of the changes seen in the trials that reached
    both (not at all where none has). A trial between two levels has the rest of the way before it, by the logarithm of
    its epochs. So trials keep their order within a level, and those that trained for less are compared with those that
    trained for more as if they had had the same time.

    Args:
        curves: Of all trials, complete or not.
        mode: Whether more or less is better.
        levels: Rungs in rising order, the full budget last.
    """
    values = [value for curve in curves for value in curve.values()]
    scale = scale_of(values, mode)
    best_of = max if mode == "max" else min
    bests = [_bests(curve, levels, scale, best_of) for curve in curves]
    changes = _changes(bests, len(levels))
    moved: list[float | None] = []
    for curve in curves:
        best = best_of(curve.values(), default=None)
        change = _to_come(max(curve), levels, changes) if curve else 0.0
        moved.append(scale.back(scale.forth(best) + change) if best is not None and change else best)
    return moved


def _bests(
    curve: Curve, levels: Sequence[int], scale: Scale, best_of: Callable[[list[float]], float]
) -> list[float | None]:
    """Return the best value by each level, on the scale; None for levels not reached."""
    last = max(curve, default=0)
    found: list[float | None] = []
    for level in levels:
        seen = [value for at, value in curve.items() if at <= level]
        found.append(scale.forth(best_of(seen)) if seen and last >= level else None)
    return found


def _changes(bests: Sequence[Sequence[float | None]], count: int) -> list[float]:
    """Return the median change from each level to the next, one fewer than there are levels."""
    changes = []
    for level in range(count - 1):
        pairs = ((best[level], best[level + 1]) for best in bests)
        seen = [after - before for before, after in pairs if before is not None and after is not None]
        changes.append(float(np.median(seen)) if seen else 0.0)
    return changes


def _to_come(at: int, levels: Sequence[int], changes: Sequence[float]) -> float:
    """Return the change from epoch or step ``at`` to the last level."""
    if at >= levels[-1]:
        return 0.0
    level = bisect_right(levels, at) - 1
    if level < 0:
        return sum(changes)
    low, high = levels[level], levels[level + 1]
    gone = math.log(at / low) / math.log(high / low)
    return (1 - gone) * changes[level] + sum(changes[level + 1 :])


def _log_odds(share: float) -> float:
    inside = min(max(share, CLOSEST), 1 - CLOSEST)
    return math.log(inside / (1 - inside))


def _share(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))
