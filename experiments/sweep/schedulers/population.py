"""Population-based training: weak trials take over the weights of strong ones, with changed hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler
from ray.tune.search.sample import Float

from experiments.sweep.budget import Budget
from experiments.sweep.errors import SweepError

if TYPE_CHECKING:
    from experiments.sweep.experiment import SearchSpace

EXCHANGES = 9
"""About how often in its budget a trial is held against the others, if it reports as often."""

KEPT = ("last_score", "last_perturbation_time", "last_train_time", "last_result")
"""What Ray's scheduler knows of a trial, besides its checkpoint."""


class Population(PopulationBasedTraining):
    """Ray's scheduler, with the first configurations from our searcher. Ray itself takes them from a grid alone."""

    _of_before: Mapping[str, Mapping[str, Any]] = {}
    """What was known of each trial before the sweep was interrupted."""

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add the trial as if there were no searcher, the one thing that Ray's scheduler asks its controller for."""
        super().on_trial_add(SimpleNamespace(search_alg=None), trial)
        for name, value in self._of_before.get(trial.trial_id, {}).items():
            setattr(self._trial_state[trial], name, value)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Name the paused trial that trained longest ago, once none is pending: those Tune starts itself, as in
        :class:`experiments.sweep.schedulers.in_order.InOrder`."""
        trials = tune_controller.get_trials()
        if any(trial.status == Trial.PENDING for trial in trials):
            return None
        paused = [trial for trial in trials if trial.status == Trial.PAUSED]
        return min(paused, key=lambda trial: self._trial_state[trial].last_train_time, default=None)

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know: scores and times of all trials, but no checkpoint.

        Nothing is taken over from a trial until it has written one again.
        """
        return {
            trial.trial_id: {name: getattr(known, name) for name in KEPT} for trial, known in self._trial_state.items()
        }

    def set_state(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Take what :meth:`get_state` returned, before the trials are added again."""
        self._of_before = state


def make_population(budget: Budget, space: SearchSpace) -> Population:
    """Return the scheduler. It changes hyperparameters with a continuous range, and keeps them inside it.

    The others (optimizer, batch size) shape the state that is taken over, and come with it unchanged. The study keeps
    the configuration that a trial began with. The population
    is the trials that train at a time; what a trial's configuration became, the sweep's folder says
    (``pbt_policy_*.txt``). Ray draws from Python's global generator: no two runs are alike.

    Raises:
        SweepError: As :func:`changeable` says.
    """
    changed = changeable(space)
    every = max(1, round(budget.total / budget.between_reports / EXCHANGES)) * budget.between_reports
    return Population(
        time_attr=budget.unit,
        perturbation_interval=every,
        hyperparam_mutations=changed,
        custom_explore_fn=partial(_inside, ranges={name: (d.lower, d.upper) for name, d in changed.items()}),
    )


def may_be_taken_over(scheduler: TrialScheduler, trial: Trial, progress: int) -> bool:
    """Whether another trial may still go on from what ``trial``, which has not ended, saved at ``progress``.

    Ray's scheduler has each trial save when it is held against the others, and lets others take over the last of these.
    """
    state = scheduler._trial_state.get(trial) if isinstance(scheduler, Population) else None
    return state is not None and progress >= state.last_perturbation_time


def changeable(space: SearchSpace) -> dict[str, Float]:
    """Return the hyperparameters that pbt changes.

    Raises:
        SweepError: There is none, or the space is a function, whose ranges are not known.
    """
    if callable(space):
        raise SweepError("--scheduler pbt: it needs a search space of ranges by name, and this one is a function")
    changed = {name: domain for name, domain in space.items() if isinstance(domain, Float)}
    if not changed:
        raise SweepError("--scheduler pbt: it changes hyperparameters with a continuous range, and there is none")
    return changed


def _inside(config: dict[str, Any], ranges: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    held = {name: min(max(config[name], low), high) for name, (low, high) in ranges.items()}
    return {**config, **held}
