"""Population-based training: weak trials take over the weights of strong ones, with changed hyperparameters."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from typing_extensions import override

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import counted
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.ranges import nearest
from gaudi_tune.sweep.policies.schedulers.scheduler import Scheduler

if TYPE_CHECKING:
    from gaudi_tune.define.search_space import SearchSpace

RESAMPLE_PROBABILITY = 0.25
"""The probability that a clone's hyperparameter is drawn from its range, as in Ray's class; else it is perturbed."""
FACTORS = (0.8, 1.2)
"""A perturbed hyperparameter is multiplied by one of these, as in Ray's class."""


class Population(Scheduler):
    """Population-based training (Jaderberg et al., 2017): what it may change, and how.

    It changes hyperparameters that have a range, or a choice of decimal numbers, and keeps them inside it. If a space
    branches, these are the hyperparameters of the donor's branch, in their ranges there. Other hyperparameters
    (optimizer, batch size) shape the state that a clone takes over, and stay as the donor has them. The seed is drawn
    again.

    The population is the trials that train at the same time. Which of them takes over which is decided by Ray's class,
    which waits for checkpoints and starts the clones: see :mod:`gaudi_tune.on_ray.given.ray_scheduler`.
    """

    clones = True

    @classmethod
    @override
    def check(cls, space: SearchSpace) -> None:
        """Raise a SweepError if nothing in the space can be changed."""
        if not any(_is_changeable(range_) for ranges in space.ranges.values() for range_ in ranges):
            raise SweepError(
                "--scheduler pbt: it changes hyperparameters with a range or a choice of decimal numbers, and "
                "the search space has none; take another scheduler"
            )

    @classmethod
    @override
    def in_words(cls, budget: Budget, groups: int, *, may_not_save: bool) -> str:
        """Return what becomes of weak trials."""
        interval = counted(budget.exchange_every(), budget.unit)
        return (
            f"the {groups} that train at the same time are the population; every {interval} the weak ones take "
            f"over the weights of the strong"
        )

    def explore(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration of a clone: changed hyperparameters inside their ranges, and a new seed.

        With the donor's seed it would train on the donor's batches in the donor's order, with the same dropout.
        """
        seed = random.getrandbits(31)
        generator = np.random.default_rng(seed)
        clone = {**config, "seed": seed}
        for name, range_ in self._space.draw_with(config).ranges.items():
            if _is_changeable(range_):
                clone[name] = _perturb(config[name], range_, generator)
        return {**clone, **self._space.draw_with(clone).config}  # with what a function computes from the others


def _is_changeable(range_: BaseDistribution) -> bool:
    if isinstance(range_, CategoricalDistribution):
        return len(range_.choices) > 1 and all(isinstance(choice, float) for choice in range_.choices)
    return isinstance(range_, FloatDistribution)


def _perturb(value: float, range_: BaseDistribution, generator: np.random.Generator) -> float:
    """Return another value of a range: any, or one near the value that the donor has."""
    resample, neighbour = generator.random() < RESAMPLE_PROBABILITY, int(generator.choice([-1, 1]))
    if isinstance(range_, CategoricalDistribution):
        choices = sorted(cast("tuple[float, ...]", range_.choices))
        place = choices.index(value) + neighbour
        return float(generator.choice(choices) if resample else choices[min(max(place, 0), len(choices) - 1)])
    assert isinstance(range_, FloatDistribution), "no other range is changeable"
    if not resample:
        new_value = value + neighbour * range_.step if range_.step else value * generator.choice(FACTORS)
    elif range_.log:
        new_value = math.exp(generator.uniform(math.log(range_.low), math.log(range_.high)))
    else:
        half = (range_.step or 0.0) / 2  # the ends of a range with steps are as likely as the others
        new_value = generator.uniform(range_.low - half, range_.high + half)
    return float(nearest(range_, new_value))
