"""What a learning curve that is not complete promises: its best value so far, moved to the full budget."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeAlias

from experiments.sweep.define.objective import Mode

Curve: TypeAlias = Mapping[int, float]
"""Finite values of the objective by epoch or step."""
Scale: TypeAlias = tuple[Callable[[float], float], Callable[[float], float]]

CLOSEST = 1e-4
"""How close to 0 and 1 a share may be before it counts as this close."""
LEAST = 1e-12
"""What a loss of 0 is taken for, which has no logarithm."""


def scale_of(values: Sequence[float], mode: Mode) -> Scale:
    """Return a scale, there and back, on which good and weak trials make about the same progress.

    Losses and error rates (none below 0, less is better) fall by factors: their logarithms. Accuracies (from 0 to 1,
    more is better) approach 1: their log odds, so that what is left falls by factors. Of anything else nothing is
    known, and the values themselves are taken.
    """
    if all(0 <= value <= 1 for value in values) and mode == "max":
        return _log_odds, lambda log_odds: 1 / (1 + math.exp(-log_odds))
    if all(value >= 0 for value in values) and mode == "min":
        return (lambda value: math.log(max(value, LEAST))), math.exp
    return float, float


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
    forth, back = scale_of([value for curve in curves for value in curve.values()], mode)
    best_of = max if mode == "max" else min

    def best_by(curve: Curve, level: int) -> float:
        return forth(best_of(value for at, value in curve.items() if at <= level))

    changes = []
    for low, high in pairwise(levels):
        reached = [curve for curve in curves if curve and min(curve) <= low and max(curve) >= high]
        changes.append(median([best_by(curve, high) - best_by(curve, low) for curve in reached] or [0.0]))
    moved: list[float | None] = []
    for curve in curves:
        best = best_of(curve.values(), default=None)
        change = _to_come(max(curve), levels, changes) if curve else 0.0
        moved.append(back(forth(best) + change) if best is not None and change else best)
    return moved


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
