"""Schedulers by name, and the rules that end a trial whatever the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune import Stopper
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler

from experiments.sweep.outcome import progress_of, why_diverged
from trainables.runtime import names

REDUCTION_FACTOR = 3
"""ASHA keeps the best third at each rung."""
GRACE_EPOCHS = 1
"""Epochs that every trial gets; ASHA's first rung."""


def make_scheduler(name: str, epochs: int) -> TrialScheduler:
    """Return the scheduler of that name, in epochs.

    Args:
        name: asha, median or fifo.
        epochs: Budget of a full trial.
    """
    if name == "asha":
        return ASHAScheduler(
            time_attr=names.EPOCH, max_t=epochs, grace_period=GRACE_EPOCHS, reduction_factor=REDUCTION_FACTOR
        )
    if name == "median":
        return MedianStoppingRule(time_attr=names.EPOCH, grace_period=GRACE_EPOCHS)
    return FIFOScheduler()


class TrialEnds(Stopper):
    """Ends a trial that has had its epochs, or whose objective or loss is no longer finite."""

    def __init__(self, metric: str, epochs: int) -> None:
        self._metric, self._epochs = metric, epochs

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Whether the trial ends with this result."""
        return progress_of(result) >= self._epochs or why_diverged(result, self._metric) is not None

    def stop_all(self) -> bool:
        """Never end the whole sweep."""
        return False
