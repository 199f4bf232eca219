"""Learning-rate schedules: the share of the peak learning rate at each optimizer step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

ScheduleKind: TypeAlias = Literal["constant", "linear", "cosine", "polynomial", "step", "exponential", "published"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule over a trial's whole budget; a pure function of the step, so that it resumes anywhere."""

    kind: ScheduleKind = "constant"
    """``linear``, ``cosine`` and ``polynomial`` (with the square of what is left, as for LARS) fall to ``floor`` at
    the end of the budget, ``step`` multiplies by ``gamma`` every ``step_size`` epochs, ``exponential`` does so evenly,
    step by step, ``published`` reads ``table``."""
    warmup: float = 0.0
    """Share of all steps in which a linear rise is multiplied in. 0 means none."""
    floor: float = 0.0
    """Share of the peak below which the learning rate does not fall."""
    step_size: int = 30
    """Epochs in which ``step`` and ``exponential`` fall by ``gamma``."""
    gamma: float = 0.1
    """Factor by which they fall."""
    table: tuple[tuple[float, float], ...] = ()
    """For ``published``: (share of the budget from which it holds, share of the peak), rising, the first from 0."""

    def factor(self, step: int, steps: int, steps_per_epoch: int) -> float:
        """Return the share of the peak learning rate.

        Args:
            step: Optimizer steps done.
            steps: Optimizer steps of the whole budget.
            steps_per_epoch: Optimizer steps of an epoch.
        """
        warmup_steps = round(self.warmup * steps)
        rise = min(1.0, (step + 1) / (warmup_steps + 1))
        return rise * max(self.floor, self._fall(step, steps, steps_per_epoch, warmup_steps))

    def _fall(self, step: int, steps: int, steps_per_epoch: int, warmup_steps: int) -> float:
        fallen, to_fall = max(0, step - warmup_steps), max(1, steps - warmup_steps)
        if self.kind == "linear":
            return self.floor + (1 - self.floor) * (1 - fallen / to_fall)
        if self.kind == "polynomial":
            return self.floor + (1 - self.floor) * (1 - fallen / to_fall) ** 2
        if self.kind == "cosine":
            return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * fallen / to_fall))
        if self.kind == "step":
            return float(self.gamma ** (step // steps_per_epoch // self.step_size))
        if self.kind == "exponential":
            return float(self.gamma ** (step / steps_per_epoch / self.step_size))
        if self.kind == "published":
            return [share for start, share in self.table if start * steps <= step + 1e-9 * steps][-1]
        return 1.0
