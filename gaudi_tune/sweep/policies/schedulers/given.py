"""Schedulers of Ray Tune, given as an object or by name: what the plan and the sweep must know of them."""

from __future__ import annotations

from typing_extensions import override

from gaudi_tune.define.budget import Budget
from gaudi_tune.sweep.policies.schedulers.scheduler import Scheduler


class GivenScheduler(Scheduler):
    """An object of Ray's, which :mod:`gaudi_tune.on_ray.given.ray_scheduler` asks in place of this class."""

    @classmethod
    @override
    def in_words(cls, budget: Budget, groups: int, *, may_not_save: bool) -> str:
        """Return who decides."""
        return "Ray's scheduler decides which trials continue, pause or end"


class GivenPopulation(GivenScheduler):
    """An object of Ray's that has trials take over the weights of others."""

    clones = True

    @classmethod
    @override
    def in_words(cls, budget: Budget, groups: int, *, may_not_save: bool) -> str:
        """Return what the population is."""
        return (
            f"the {groups} that train at the same time are the population, and Ray's scheduler decides which weights "
            f"they take over"
        )
