"""What a trial has trained since its last report."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class Interval:
    """The steps since the last report. A checkpoint between two reports keeps it, with the sums of rank 0 for all."""

    start: int
    """Steps that had been taken at the last report."""
    loss_sum: torch.Tensor
    """The summed loss, without dimensions."""
    correct: torch.Tensor
    """How many predictions were right, and how many there were."""
