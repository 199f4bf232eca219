"""Schedulers by name, and the rules that end a trial whatever the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune import Stopper
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler

from experiments.sweep.budget import Budget
from experiments.sweep.outcome import why_diverged

REDUCTION_FACTOR = 3
"""ASHA keeps the best third at each rung."""


def make_scheduler(name: str, budget: Budget) -> TrialScheduler:
    """Return the scheduler of that name, in the unit of the budget; every trial gets as far as its first report.

    Args:
        name: asha, median or fifo.
        budget: Of a full trial.
    """
    if name == "asha":
        return ASHAScheduler(
            time_attr=budget.unit,
            max_t=budget.total,
            grace_period=budget.between_reports,
            reduction_factor=REDUCTION_FACTOR,
        )
    if name == "median":
        return MedianStoppingRule(time_attr=budget.unit, grace_period=budget.between_reports)
    return FIFOScheduler()


class TrialEnds(Stopper):
    """Ends a trial that has had its budget, or whose objective or loss is no longer finite."""

    def __init__(self, metric: str, budget: Budget) -> None:
        self._metric, self._budget = metric, budget

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Whether the trial ends with this result."""
        return self._budget.spent(result) or why_diverged(result, self._metric) is not None

    def stop_all(self) -> bool:
        """Never end the whole sweep."""
        return False
