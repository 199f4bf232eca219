"""A schedule that waits for a plateau: trainers take its step after they have reported, and after a trial was saved."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau


@contextmanager
def after_its_step(schedule: Any, value: Any) -> Iterator[None]:
    """Have a ReduceLROnPlateau and its optimizer be as they will be after its next step, for what is saved meanwhile.

    Args:
        schedule: Any other stays as it is.
        value: What the trainer will give it; None where it will not take a step.
    """
    if value is None or not isinstance(schedule, ReduceLROnPlateau):
        yield
        return
    groups, before = schedule.optimizer.param_groups, copy.deepcopy(schedule.state_dict())
    rates = [group["lr"] for group in groups]
    schedule.step(value)
    try:
        yield
    finally:
        schedule.load_state_dict(before)
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
