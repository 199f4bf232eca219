"""Saves ReduceLROnPlateau correctly: trainers step it only after a report, when the checkpoint has been written."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau


@contextmanager
def stepped_plateau(schedule: Any, value: Any) -> Iterator[None]:
    """Put a ReduceLROnPlateau and its optimizer into the state after the next step, inside the block.

    A checkpoint that is written meanwhile has the state that the trainer will have.

    Args:
        schedule: The schedule. One of another class stays as it is.
        value: The metric that the trainer will pass to the next step; None if there will be no step.
    """
    if value is None or not isinstance(schedule, ReduceLROnPlateau):
        yield
        return
    groups, state = schedule.optimizer.param_groups, copy.deepcopy(schedule.state_dict())
    rates = [group["lr"] for group in groups]
    schedule.step(value)
    try:
        yield
    finally:
        schedule.load_state_dict(state)
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
