"""Times the training steps between two reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

SHORTEST_STEP_S = 1e-6
"""Least seconds of a step. If all of its time counts as compilation, none is left."""


class StepTimes(NamedTuple):
    """How long the steps between two reports took, without compilations."""

    total_s: float
    """Seconds of all steps, without ``first_step_extra_s``."""
    first_step_extra_s: float
    """Seconds that the trial's first step took longer than the others; 0 if it is not among the steps."""
    step_s: float
    """Mean seconds of a step, without the trial's first one."""
    last_step_s: float
    """Seconds of the last step."""


class StepTimer:
    """Times steps on a clock that stands still during compilations.

    It waits for the device only twice: after the trial's first step and before the last step until the report.
    """

    def __init__(self, clock: Callable[[], float], synchronize: Callable[[], None]) -> None:
        """Begin to measure; ``synchronize`` waits until the device has finished its work."""
        self._clock, self._synchronize = clock, synchronize
        self._started_at = self._first_step_ended_at = self._last_step_began_at = clock()

    def first_step_has_ended(self) -> None:
        """Note that the trial's first step has ended."""
        self._synchronize()
        self._first_step_ended_at = self._clock()

    def last_step_begins(self) -> None:
        """Note that the last step before the report begins."""
        self._synchronize()
        self._last_step_began_at = self._clock()

    def stop(self, steps: int) -> StepTimes:
        """Return the times of all steps; the device must have finished them."""
        ended_at = self._clock()
        first_step_s = self._first_step_ended_at - self._started_at  # 0 unless the trial's first step is among them
        if first_step_s and steps > 1:
            step_s = (ended_at - self._first_step_ended_at) / (steps - 1)
        else:
            step_s = (ended_at - self._started_at) / steps
        step_s = max(SHORTEST_STEP_S, step_s)
        extra_s = max(0.0, first_step_s - step_s)
        return StepTimes(
            total_s=ended_at - self._started_at - extra_s,
            first_step_extra_s=extra_s,
            step_s=step_s,
            last_step_s=max(SHORTEST_STEP_S, ended_at - self._last_step_began_at),
        )
