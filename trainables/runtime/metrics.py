"""Metrics over all ranks and all samples, each sample counted once; and the names under which they are reported."""

from __future__ import annotations

from functools import cache
from typing import Any

import datasets
import evaluate
import numpy as np
import torch
import torch.distributed as dist

EPOCH = "epoch"
"""Epochs finished, from 1: the time axis of schedulers and of every curve."""
TRAIN_LOSS = "train_loss"
"""Mean training loss over the epoch and all ranks."""
VAL_LOSS = "val_loss"
"""Mean validation loss over all samples."""
VAL_ACCURACY = "val_accuracy"
"""Share of validation samples classified right, from 0 to 1."""
LEARNING_RATE = "lr_now"
"""Learning rate at the end of the epoch (the hyperparameter ``lr`` is its peak)."""
SAMPLES_PER_SECOND = "samples_per_s"
"""Training samples per second of all ranks in this epoch."""
TRAIN_SECONDS = "train_s"
"""Seconds of this epoch spent training."""
EVAL_SECONDS = "eval_s"
"""Seconds of this epoch spent on validation."""
FIRST_STEP_AT = "first_step_at"
"""Clock time (seconds since 1970) of the trial's first training step in this process."""


class Accuracy(evaluate.Metric):  # type: ignore[misc]
    """Share of predictions equal to their reference; ``evaluate.load("accuracy")`` would need the hub."""

    def _info(self) -> evaluate.MetricInfo:
        features = {"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}
        return evaluate.MetricInfo(
            description="Share of predictions equal to their reference.",
            citation="",
            inputs_description="predictions, references: lists of class indices of one length",
            features=datasets.Features(features),
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"accuracy": float(np.mean(np.asarray(predictions) == np.asarray(references)))}


@cache
def accuracy_metric() -> Accuracy:
    """Return this process's accuracy metric; making one takes longer than using it."""
    return Accuracy(keep_in_memory=True)


def sum_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the element-wise sum of ``values`` over all ranks."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(values)
    return values


def gather_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the values of all ranks, one after the other; ranks may hold different numbers of them.

    Args:
        values: Shape (n,), n free on each rank.
    """
    if not (dist.is_initialized() and dist.get_world_size() > 1):
        return values
    world = dist.get_world_size()
    counts = torch.zeros(world, dtype=torch.int64, device=values.device)
    counts[dist.get_rank()] = len(values)
    dist.all_reduce(counts)
    longest = int(counts.max())
    padded = torch.zeros(longest, dtype=values.dtype, device=values.device)
    padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(count)] for part, count in zip(parts, counts, strict=True)])
