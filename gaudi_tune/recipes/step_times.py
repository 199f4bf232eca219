"""Times the training steps between two reports."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

LEAST_SHARE = 0.1
"""Least share of an interval that counts as training. Compilations in parallel threads can take all of an interval by
their own count, and a throughput computed from what is left would be anything."""


class StepTimes(NamedTuple):
    """How long the steps between two reports took, without compilations."""

    total_s: float
    """Seconds of all steps, without ``first_step_extra_s``."""
    first_step_extra_s: float
    """Seconds that the trial's first step took longer than the others; 0 if it is not among the steps."""
    step_s: float
    """Mean seconds of a step, without the trial's first one."""


class _Moment(NamedTuple):
    clock_s: float
    wall_s: float


class StepTimer:
    """Times steps on a clock that stands still during compilations.

    It waits for the device only once: after the trial's first step.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        synchronize: Callable[[], None],
        wall_clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Begin to measure; ``synchronize`` waits until the device has finished its work."""
        self._clock, self._wall_clock, self._synchronize = clock, wall_clock, synchronize
        self._start = self._first_step_end = self._moment()

    def first_step_has_ended(self) -> None:
        """Note that the trial's first step has ended."""
        self._synchronize()
        self._first_step_end = self._moment()

    def stop(self, steps: int) -> StepTimes:
        """Return the times of all steps; the device must have finished them."""
        end = self._moment()
        first_step_s = self._first_step_end.clock_s - self._start.clock_s
        if self._first_step_end != self._start and steps > 1:  # the trial's first step is among them
            step_s = _seconds(self._first_step_end, end) / (steps - 1)
        else:
            step_s = _seconds(self._start, end) / steps
        extra_s = max(0.0, first_step_s - step_s)
        return StepTimes(total_s=end.clock_s - self._start.clock_s - extra_s, first_step_extra_s=extra_s, step_s=step_s)

    def _moment(self) -> _Moment:
        return _Moment(self._clock(), self._wall_clock())


def _seconds(start: _Moment, end: _Moment) -> float:
    """Return the seconds of training in an interval, above 0."""
    return max(end.clock_s - start.clock_s, LEAST_SHARE * (end.wall_s - start.wall_s), sys.float_info.epsilon)
