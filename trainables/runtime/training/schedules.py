"""Learning-rate schedules: the share of the peak learning rate at each optimizer step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

ScheduleKind = Literal["constant", "step", "cosine", "table"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule over a trial's whole budget; a pure function of the step, so that it resumes anywhere."""

    kind: ScheduleKind = "constant"
    """``step`` multiplies by ``gamma`` every ``step_size`` epochs, ``cosine`` falls to 0 at the end of the budget,
    ``table`` reads ``table``."""
    per: Literal["step", "epoch"] = "step"
    """When the learning rate falls: after each optimizer step, or at the start of each epoch."""
    warmup: float = 0.0
    """Share of all steps in which a linear rise is multiplied in, step by step. 0 means none."""
    step_size: int = 30
    """Epochs between two falls of ``step``."""
    gamma: float = 0.1
    """Factor of each fall of ``step``."""
    table: tuple[tuple[float, float], ...] = ()
    """For ``table``: (share of the budget from which it holds, share of the peak), rising, the first from 0."""

    def factor(self, step: int, steps: int, steps_per_epoch: int) -> float:
        """Return the share of the peak learning rate.

        Args:
            step: Optimizer steps done.
            steps: Optimizer steps of the whole budget.
            steps_per_epoch: Optimizer steps of an epoch.
        """
        warmup_steps = round(self.warmup * steps)
        rise = min(1.0, (step + 1) / (warmup_steps + 1))
        if self.per == "epoch":
            step -= step % steps_per_epoch  # the rise stays per step: a first epoch at next to nothing would be lost
        return rise * self._fall(step, steps, steps_per_epoch, warmup_steps)

    def _fall(self, step: int, steps: int, steps_per_epoch: int, warmup_steps: int) -> float:
        if self.kind == "step":
            return float(self.gamma ** (step // steps_per_epoch // self.step_size))
        if self.kind == "cosine":
            return 0.5 * (1 + math.cos(math.pi * max(0, step - warmup_steps) / max(1, steps - warmup_steps)))
        if self.kind == "table":
            return [share for start, share in self.table if start * steps <= step + 1e-6 * steps][-1]
        return 1.0
