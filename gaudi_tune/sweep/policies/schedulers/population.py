"""Population-based training: weak trials take over the weights of strong ones, with changed hyperparameters."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.budget import Budget
from gaudi_tune.private.ray_tune import NO_SEARCHER, PBT_STATE, pbt_states
from gaudi_tune.sweep.policies.schedulers.chosen import ChosenScheduler

if TYPE_CHECKING:
    from gaudi_tune.define.search_space import SearchSpace

RESAMPLE_PROBABILITY = 0.25
"""The probability that a clone's hyperparameter is drawn from its range, as in Ray's class; else it is perturbed."""
FACTORS = (0.8, 1.2)
"""A perturbed hyperparameter is multiplied by one of these, as in Ray's class."""


class Population(ChosenScheduler, PopulationBasedTraining):
    """Ray's scheduler, with the first configurations from our searcher, which Ray refuses."""

    pauses_unasked = True

    _restored_states: Mapping[str, Mapping[str, Any]] = {}
    """What was known of each trial before the sweep was interrupted."""

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add the trial as if there were no searcher, the one thing that Ray's scheduler asks its controller for."""
        super().on_trial_add(NO_SEARCHER, trial)
        for name, value in self._restored_states.get(trial.trial_id, {}).items():
            setattr(pbt_states(self)[trial], name, value)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the paused trial that trained longest ago, once no trial is pending.

        Tune starts pending trials itself, as with :class:`gaudi_tune.sweep.policies.schedulers.fifo.Fifo`.
        """
        trials = tune_controller.get_trials()
        if any(trial.status == Trial.PENDING for trial in trials):
            return None
        paused = [trial for trial in trials if trial.status == Trial.PAUSED]
        return min(paused, key=lambda trial: pbt_states(self)[trial].last_train_time, default=None)

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know: scores and times of all trials, but no checkpoint.

        No trial is cloned until it has written a checkpoint again.
        """
        return {
            trial.trial_id: {name: getattr(state, name) for name in PBT_STATE}
            for trial, state in pbt_states(self).items()
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned, before the trials are added again."""
        self._restored_states = state


def make_population(budget: Budget, space: SearchSpace) -> Population:
    """Return the scheduler.

    It changes hyperparameters that have a range, or a choice of decimal numbers, and keeps them inside it. If a space
    branches, these are the hyperparameters of the donor's branch, in their ranges there. Other hyperparameters
    (optimizer, batch size) shape the state that a clone takes over, and stay as the donor has them. The seed is drawn
    again.

    The population is the trials that train at the same time. The study keeps the configuration that a trial began with,
    and ``pbt_policy_*.txt`` in the sweep's folder has the changes. Ray draws from Python's global generator, so no two
    runs are alike.
    """
    check_changeable(space)
    return Population(
        time_attr=budget.unit,
        perturbation_interval=budget.exchange_every(),
        custom_explore_fn=partial(_explore, space=space),
    )


def may_be_taken_over(scheduler: TrialScheduler, trial: Trial, progress: int) -> bool:
    """Whether another trial may still continue from what ``trial``, which has not ended, saved at ``progress``.

    Ray's scheduler has each trial save when it compares it with the others, which may then take over that checkpoint.
    """
    state = pbt_states(scheduler).get(trial) if isinstance(scheduler, Population) else None
    return state is not None and progress >= state.last_perturbation_time


def check_changeable(space: SearchSpace) -> None:
    """Raise a SweepError if pbt can change nothing in a space."""
    if not any(_is_changeable(range_) for ranges in space.ranges.values() for range_ in ranges):
        raise SweepError(
            "--scheduler pbt: it changes hyperparameters with a range or a choice of decimal numbers, and "
            "the search space has none; take another scheduler"
        )


def _is_changeable(range_: BaseDistribution) -> bool:
    if isinstance(range_, CategoricalDistribution):
        return len(range_.choices) > 1 and all(isinstance(choice, float) for choice in range_.choices)
    return isinstance(range_, FloatDistribution)


def _ordered_values(range_: BaseDistribution) -> list[float]:
    """Return the choices in order, or the values of a range with steps; empty for a continuous range."""
    if isinstance(range_, CategoricalDistribution):
        return sorted(cast("tuple[float, ...]", range_.choices))
    assert isinstance(range_, FloatDistribution)
    if not range_.step:
        return []
    steps = round((range_.high - range_.low) / range_.step)
    return [min(range_.low + range_.step * step, range_.high) for step in range(steps + 1)]


def _explore(config: dict[str, Any], space: SearchSpace) -> dict[str, Any]:
    """Return the configuration of a clone: changed hyperparameters inside their ranges, and a new seed.

    With the donor's seed it would train on the donor's batches in the donor's order, with the same dropout.
    """
    seed = random.getrandbits(31)
    generator = np.random.default_rng(seed)
    clone = {**config, "seed": seed}
    for name, range_ in space.draw_with(config).ranges.items():
        if _is_changeable(range_):
            clone[name] = _perturb(config[name], range_, generator)
    return {**clone, **space.draw_with(clone).config}  # with what a function computes from the other hyperparameters


def _perturb(value: float, range_: BaseDistribution, generator: np.random.Generator) -> float:
    """Return another value of a range: any, or one near the value that the donor has."""
    resample = generator.random() < RESAMPLE_PROBABILITY
    values = _ordered_values(range_)
    if values:
        neighbour = values.index(min(values, key=lambda choice: abs(choice - value))) + generator.choice([-1, 1])
        return float(generator.choice(values) if resample else values[min(max(neighbour, 0), len(values) - 1)])
    assert isinstance(range_, FloatDistribution)
    low, high = range_.low, range_.high
    if not resample:
        new_value = value * generator.choice(FACTORS)
    elif range_.log:
        new_value = math.exp(generator.uniform(math.log(low), math.log(high)))
    else:
        new_value = generator.uniform(low, high)
    return float(min(max(new_value, low), high))
