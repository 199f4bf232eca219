"""What a learning curve that is not complete promises: its best value so far, moved to the full budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from experiments.sweep.define.objective import Mode

Array: TypeAlias = npt.NDArray[np.float64]
Curve: TypeAlias = Mapping[int, float]
"""Finite values of the objective by epoch or step."""
Scale: TypeAlias = tuple[Callable[[Array], Array], Callable[[Array], Array]]

CLOSEST = 1e-4
"""How close to 0 and 1 a share may be before it counts as this close."""
LEAST = 1e-12
"""What a loss of 0 is taken for, which has no logarithm."""
FIRST, LAST, LOWEST, HIGHEST, BEST, BY_LEVEL = range(6)
"""Columns of curves: first and last epoch or step; of the values the lowest, the highest and the best; and, from
the last on, the best by each level."""


def scale_of(lowest: float, highest: float, mode: Mode) -> Scale:
    """Return a scale, there and back, on which good and weak trials make about the same progress.

    Losses and error rates (none below 0, less is better) fall by factors: their logarithms. Accuracies (from 0 to 1,
    more is better) approach 1: their log odds, so that what is left falls by factors. Of anything else nothing is
    known, and the values themselves are taken.
    """
    if lowest >= 0 and highest <= 1 and mode == "max":
        return _log_odds, lambda log_odds: 1 / (1 + np.exp(-log_odds))
    if lowest >= 0 and mode == "min":
        return (lambda values: np.log(np.maximum(values, LEAST))), np.exp
    return (lambda values: values), (lambda values: values)


class Curves:
    """The curves of all trials, of which a few change from one proposal to the next."""

    def __init__(self, mode: Mode, levels: Sequence[int]) -> None:
        """Begin with none.

        Args:
            mode: Whether more or less is better.
            levels: Rungs in rising order, the full budget last.
        """
        self._mode, self._levels = mode, np.array(levels)
        self._rows = np.full((64, BY_LEVEL + len(levels)), np.nan)
        self._count = 0

    def put(self, number: int, curve: Curve) -> None:
        """Set the curve of a trial: a new one, the next, or one that is there."""
        if number == len(self._rows):
            self._rows = np.vstack([self._rows, np.full_like(self._rows, np.nan)])
        self._count = max(self._count, number + 1)
        row = self._rows[number]
        row[:] = np.nan
        if not curve:
            return
        steps = np.array(sorted(curve))
        values = np.array([curve[step] for step in steps.tolist()])
        best = (np.maximum if self._mode == "max" else np.minimum).accumulate(values)
        row[:BY_LEVEL] = steps[0], steps[-1], values.min(), values.max(), best[-1]
        reached = (self._levels >= steps[0]) & (self._levels <= steps[-1])
        row[BY_LEVEL:][reached] = best[np.searchsorted(steps, self._levels[reached], side="right") - 1]

    def expected(self) -> Array:
        """Return for each curve the best value to expect of it at the full budget; NaN for a curve without values.

        From one level to the next the best value changes by the median of the changes seen in the trials that reached
        both (not at all where none has). A trial between two levels has the rest of the way before it, by the logarithm
        of its epochs. So trials keep their order within a level, and those that trained for less are compared with
        those that trained for more as if they had had the same time.
        """
        rows = self._rows[: self._count]
        best = rows[:, BEST]
        there = np.isfinite(best)
        if not there.any():
            return best.copy()
        forth, back = scale_of(rows[there, LOWEST].min(), rows[there, HIGHEST].max(), self._mode)
        steps = np.diff(forth(rows[:, BY_LEVEL:]), axis=1)
        seen = [column[np.isfinite(column)] for column in steps.T]
        changes = np.array([np.median(column) if len(column) else 0.0 for column in seen])
        to_come = np.zeros(len(rows))
        to_come[there] = self._to_come(rows[there, LAST], changes)
        return np.where(to_come == 0, best, back(forth(best) + to_come))

    def _to_come(self, at: Array, changes: Array) -> Array:
        """Return the changes from epochs or steps ``at`` to the last level."""
        from_level = np.append(np.cumsum(changes[::-1])[::-1], 0.0)
        level = np.searchsorted(self._levels, at, side="right") - 1
        inside = (level >= 0) & (at < self._levels[-1])
        low, high = self._levels[level[inside]], self._levels[level[inside] + 1]
        left = from_level[np.maximum(level, 0)]
        left[inside] -= changes[level[inside]] * np.log(at[inside] / low) / np.log(high / low)
        return left


def _log_odds(shares: Array) -> Array:
    inside = np.clip(shares, CLOSEST, 1 - CLOSEST)
    return np.log(inside / (1 - inside))
