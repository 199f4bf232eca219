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
    """Return the scheduler of that name, in the unit of the budget; every trial gets as far as its first report.

    pbt finds new values in the ``space``. asha-promote must know the ``trials`` of the whole sweep and the ``groups``
    that train at a time. Those with rungs compare trials by all ``objectives``, the rest by the first.
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
    """Return Hyperband's share of trials that begin at each rung, the last of which is never stopped.

    Hyperband (Li et al., 2018) gives each bracket about the same number of epochs: of brackets 0 to *s*, bracket *b*
    has a number of trials in proportion to r**(s - b) / (s - b + 1), where *r* is the reduction.
    """
    last = len(budget.rungs())
    weights = [budget.reduction ** (last - bracket) / (last - bracket + 1) for bracket in range(last + 1)]
    return [weight / sum(weights) for weight in weights]
