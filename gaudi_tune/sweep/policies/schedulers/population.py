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

DRAWN_AGAIN = 0.25
"""How often a clone's hyperparameter is drawn again from its range, as in Ray's own exploration; else it moves."""
FACTORS = (0.8, 1.2)
"""By which it moves, as in Ray's own."""


class Population(ChosenScheduler, PopulationBasedTraining):
    """Ray's scheduler, with first configurations from our searcher, which Ray refuses."""

    pauses_unasked = True

    _of_before: Mapping[str, Mapping[str, Any]] = {}
    """What was known of each trial before the sweep was interrupted."""

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add the trial as if there were no searcher, the one thing that Ray's scheduler asks its controller for."""
        super().on_trial_add(NO_SEARCHER, trial)
        for name, value in self._of_before.get(trial.trial_id, {}).items():
            setattr(pbt_states(self)[trial], name, value)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Name the paused trial that trained longest ago, once none is pending: those Tune starts itself, as in
        :class:`gaudi_tune.sweep.policies.schedulers.fifo.Fifo`."""
        trials = tune_controller.get_trials()
        if any(trial.status == Trial.PENDING for trial in trials):
            return None
        paused = [trial for trial in trials if trial.status == Trial.PAUSED]
        return min(paused, key=lambda trial: pbt_states(self)[trial].last_train_time, default=None)

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know: scores and times of all trials, but no checkpoint.

        Nothing is taken over from a trial until it has written one again.
        """
        return {
            trial.trial_id: {name: getattr(known, name) for name in PBT_STATE}
            for trial, known in pbt_states(self).items()
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned, before the trials are added again."""
        self._of_before = state


def make_population(budget: Budget, space: SearchSpace) -> Population:
    """Return the scheduler. It changes hyperparameters with a range, or a choice of decimal numbers, and
    keeps them inside it; where a space branches, those of the donor's branch in their ranges there.

    The others (optimizer, batch size) shape the state that a clone takes over, and stay as the donor has them; the seed
    is drawn again. The population is the trials that train at the same time. The study keeps the configuration that a
    trial began with, and ``pbt_policy_*.txt`` in the sweep's folder says what became of it. Ray draws from Python's
    global generator, so no two runs are alike.
    """
    check_changeable(space)
    return Population(
        time_attr=budget.unit,
        perturbation_interval=budget.exchange_every(),
        custom_explore_fn=partial(_explored, space=space),
    )


def may_be_taken_over(scheduler: TrialScheduler, trial: Trial, progress: int) -> bool:
    """Whether another trial may still go on from what ``trial``, which has not ended, saved at ``progress``.

    Ray's scheduler has each trial save when it compares it with the others, which may take over the last of these.
    """
    state = pbt_states(scheduler).get(trial) if isinstance(scheduler, Population) else None
    return state is not None and progress >= state.last_perturbation_time


def check_changeable(space: SearchSpace) -> None:
    """Raise a SweepError if pbt can change nothing in a space."""
    if not any(_changes(range_) for ranges in space.ranges.values() for range_ in ranges):
        raise SweepError(
            "--scheduler pbt: it changes hyperparameters with a range or a choice of decimal numbers, and "
            "the search space has none; take another scheduler"
        )


def _changes(range_: BaseDistribution) -> bool:
    if isinstance(range_, CategoricalDistribution):
        return len(range_.choices) > 1 and all(isinstance(choice, float) for choice in range_.choices)
    return isinstance(range_, FloatDistribution)


def _few_values(range_: BaseDistribution) -> list[float]:
    """Return the choices in order, or the values of a range with steps; empty for a continuous range."""
    if isinstance(range_, CategoricalDistribution):
        return sorted(cast("tuple[float, ...]", range_.choices))
    assert isinstance(range_, FloatDistribution)
    if not range_.step:
        return []
    steps = round((range_.high - range_.low) / range_.step)
    return [min(range_.low + range_.step * step, range_.high) for step in range(steps + 1)]


def _explored(config: dict[str, Any], space: SearchSpace) -> dict[str, Any]:
    """Return the configuration of a clone: changed hyperparameters inside their ranges, and a new seed.

    With the donor's seed it would train on the donor's batches in the donor's order, with the same dropout.
    """
    seed = random.getrandbits(31)
    draw = np.random.default_rng(seed)
    ranges = {name: range_ for name, range_ in space.at(config).ranges.items() if _changes(range_)}
    changed = {name: _moved(config[name], range_, draw) for name, range_ in ranges.items()}
    clone = {**config, **changed, "seed": seed}
    return {**clone, **space.at(clone).config}  # with what a function computes from the others


def _moved(value: float, range_: BaseDistribution, draw: np.random.Generator) -> float:
    again = draw.random() < DRAWN_AGAIN
    if choices := _few_values(range_):
        beside = choices.index(min(choices, key=lambda choice: abs(choice - value))) + draw.choice([-1, 1])
        return float(draw.choice(choices) if again else choices[min(max(beside, 0), len(choices) - 1)])
    assert isinstance(range_, FloatDistribution)
    low, high = range_.low, range_.high
    if not again:
        moved = value * draw.choice(FACTORS)
    elif range_.log:
        moved = math.exp(draw.uniform(math.log(low), math.log(high)))
    else:
        moved = draw.uniform(low, high)
    return float(min(max(moved, low), high))
