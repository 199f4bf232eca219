"""Schedulers by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.options import SchedulerName
from gaudi_tune.sweep.policies.schedulers.chosen import ChosenScheduler
from gaudi_tune.sweep.policies.schedulers.fifo import Fifo
from gaudi_tune.sweep.policies.schedulers.halving import SuccessiveHalving
from gaudi_tune.sweep.policies.schedulers.median import MedianRule
from gaudi_tune.sweep.policies.schedulers.population import make_population

if TYPE_CHECKING:
    from gaudi_tune.define.search_space import SearchSpace


def make_scheduler(
    name: SchedulerName,
    budget: Budget,
    objectives: Sequence[Objective],
    *,
    space: SearchSpace | None = None,
    trials: int = 0,
    groups: int = 0,
) -> ChosenScheduler:
    """Return the scheduler of that name, in the unit of the budget.

    With each of them, every trial gets as far as its first report.

    Args:
        name: Its name, as ``--scheduler`` takes it.
        budget: The budget of a full trial.
        objectives: What trials are compared by; schedulers without rungs compare the first alone.
        space: The space in which pbt finds new values; the other schedulers need none.
        trials: How many trials the whole sweep has, for asha-promote.
        groups: How many worker groups train at a time, for asha-promote.
    """
    if name == "asha":
        return SuccessiveHalving(budget, objectives)
    if name == "asha-promote":
        return SuccessiveHalving(budget, objectives, pausing=True, trials=trials, groups=groups)
    if name == "hyperband":
        return SuccessiveHalving(budget, objectives, shares=bracket_shares(budget))
    if name == "median":
        return MedianRule(budget, objectives[0])
    if name == "pbt":
        assert space is not None, "pbt finds new values in the space"
        return make_population(budget, space)
    return Fifo()


def bracket_shares(budget: Budget) -> list[float]:
    """Return the share of trials that each of Hyperband's brackets gets; the trials of the last are never stopped.

    Hyperband (Li et al., 2018) gives each bracket about the same number of epochs: of brackets 0 to *s*, bracket *b*
    has a number of trials in proportion to r**(s - b) / (s - b + 1), where *r* is the reduction.
    """
    last_bracket = len(budget.rungs())
    distances = range(last_bracket, -1, -1)  # s - b of the formula
    weights = [budget.reduction**distance / (distance + 1) for distance in distances]
    return [weight / sum(weights) for weight in weights]
