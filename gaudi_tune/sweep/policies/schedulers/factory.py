"""The schedulers by their names, as ``--scheduler`` takes them."""

from __future__ import annotations

from gaudi_tune.define.options import RAYS_POPULATION, SchedulerName
from gaudi_tune.sweep.policies.schedulers.fifo import Fifo
from gaudi_tune.sweep.policies.schedulers.given import GivenPopulation, GivenScheduler
from gaudi_tune.sweep.policies.schedulers.halving import PromotingHalving, SuccessiveHalving
from gaudi_tune.sweep.policies.schedulers.population import Population
from gaudi_tune.sweep.policies.schedulers.scheduler import Scheduler

SCHEDULERS: dict[SchedulerName, type[Scheduler]] = {
    "asha": SuccessiveHalving,
    "asha-promote": PromotingHalving,
    "hyperband": GivenScheduler,
    "median": GivenScheduler,
    "pbt": Population,
    "fifo": Fifo,
}


def scheduler_kind(name: str) -> type[Scheduler]:
    """Return the class for a scheduler's name in the options, which may be that of an object of Ray's."""
    if name in SCHEDULERS:
        return SCHEDULERS[name]
    return GivenPopulation if name.startswith(RAYS_POPULATION) else GivenScheduler
