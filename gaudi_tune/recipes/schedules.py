"""Learning-rate schedules: the share of the peak learning rate at each optimizer step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

ScheduleKind: TypeAlias = Literal["constant", "linear", "cosine", "polynomial", "step", "exponential", "published"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule over a trial's whole budget. It is a pure function of the step, so a trial can resume anywhere."""

    kind: ScheduleKind = "constant"
    """``linear``, ``cosine`` and ``polynomial`` (with the square of what is left, as for LARS) fall to ``floor`` at the
    end of the budget. ``step`` multiplies by ``gamma`` every ``step_size`` epochs, and ``exponential`` does so evenly
    in every step. ``published`` reads ``table``."""
    warmup: float = 0.0
    """Share of all steps in which the schedule is multiplied by a linear rise. 0 means none."""
    warmup_from_zero: bool = False
    """Whether the rise has 0 in its first step, or the first of as many parts as it has steps and one more."""
    floor: float = 0.0
    """Share of the peak below which the learning rate does not fall."""
    step_size: int = 30
    """Epochs after which ``step`` and ``exponential`` have fallen by ``gamma``."""
    gamma: float = 0.1
    """Factor of ``step`` and ``exponential``."""
    table: tuple[tuple[float, float], ...] = ()
    """Rows of ``published``: (share of the budget at which the row begins, share of the peak). The first begins at
    0."""

    def factor(self, step: int, steps: int, steps_per_epoch: int) -> float:
        """Return the share of the peak learning rate.

        Args:
            step: Number of optimizer steps done.
            steps: Number of optimizer steps of the whole budget.
            steps_per_epoch: Number of optimizer steps of an epoch.
        """
        warmup_steps = round(self.warmup * steps)
        offset = 0 if self.warmup_from_zero and warmup_steps else 1
        rise = min(1.0, (step + offset) / (warmup_steps + offset))
        return rise * max(self.floor, self._fall(step, steps, steps_per_epoch, warmup_steps))

    def _fall(self, step: int, steps: int, steps_per_epoch: int, warmup_steps: int) -> float:
        steps_fallen, total_fall = max(0, step - warmup_steps), max(1, steps - warmup_steps)
        if self.kind == "linear":
            return self.floor + (1 - self.floor) * (1 - steps_fallen / total_fall)
        if self.kind == "polynomial":
            return self.floor + (1 - self.floor) * (1 - steps_fallen / total_fall) ** 2
        if self.kind == "cosine":
            return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * steps_fallen / total_fall))
        if self.kind == "step":
            return float(self.gamma ** (step // steps_per_epoch // self.step_size))
        if self.kind == "exponential":
            return float(self.gamma ** (step / steps_per_epoch / self.step_size))
        if self.kind == "published":
            shares = [share for start, share in self.table if start * steps <= step + 1e-9 * steps]
            return shares[-1]
        return 1.0
