"""Schedulers by name, and the rules that end a trial whatever the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ray.tune import Callback, Stopper
from ray.tune.schedulers import TrialScheduler

from experiments.sweep.budget import REDUCTION_FACTOR, Budget
from experiments.sweep.options import SchedulerName
from experiments.sweep.outcome import why_diverged
from experiments.sweep.schedulers.halving import PROBES, SuccessiveHalving
from experiments.sweep.schedulers.in_order import InOrder
from experiments.sweep.schedulers.median import MedianRule
from experiments.sweep.schedulers.population import make_population

if TYPE_CHECKING:
    from experiments.sweep.experiment import SearchSpace

PROBED_FROM = 5 * PROBES
"""Trials of a sweep from which on it is worth its epochs to see whether the first rung informs."""


def make_scheduler(
    name: SchedulerName,
    budget: Budget,
    *,
    space: SearchSpace | None = None,
    trials: int = 0,
    groups: int = 0,
) -> TrialScheduler:
    """Return the scheduler of that name, in the unit of the budget; every trial gets as far as its first report.

    Args:
        name: What :class:`experiments.sweep.options.SweepOptions` says of each.
        budget: Of a full trial.
        space: Where pbt finds new values.
        trials: In the whole sweep: asha-promote must know when the last one has come, and a small one has no probes.
        groups: Trials that train at a time; asha-promote resumes no more than that.

    Raises:
        SweepError: pbt cannot change anything in this space.
    """
    probing = trials >= PROBED_FROM
    if name == "asha":
        return SuccessiveHalving(budget, probing=probing)
    if name == "asha-promote":
        return SuccessiveHalving(budget, pausing=True, probing=probing, trials=trials, groups=groups)
    if name == "hyperband":
        return SuccessiveHalving(budget, shares=bracket_shares(budget))
    if name == "median":
        return MedianRule(budget)
    if name == "pbt":
        return make_population(budget, space or {})
    return InOrder()


def bracket_shares(budget: Budget) -> list[float]:
    """Return Hyperband's share of trials that begin at each rung, the last of which is never stopped.

    Hyperband (Li et al., 2018) gives each bracket about the same number of epochs: of brackets 0 to *s*, bracket *b*
    has a number of trials in proportion to 3**(s - b) / (s - b + 1).
    """
    last = len(budget.rungs())
    weights = [REDUCTION_FACTOR ** (last - bracket) / (last - bracket + 1) for bracket in range(last + 1)]
    return [weight / sum(weights) for weight in weights]


class KeepState(Callback):
    """Puts a scheduler's state into the sweep's snapshots, and back: Tune does it for callbacks, not for schedulers."""

    def __init__(self, scheduler: TrialScheduler) -> None:
        self._scheduler = scheduler

    def get_state(self) -> dict[str, Any] | None:
        """Return what the scheduler knows; None if it has no state to keep."""
        get_state = getattr(self._scheduler, "get_state", None)
        return get_state() if get_state is not None else None

    def set_state(self, state: dict[str, Any]) -> None:
        """Give it back, before Tune adds the trials again."""
        self._scheduler.set_state(state)


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
