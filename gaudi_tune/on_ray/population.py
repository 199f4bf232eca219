"""Population-based training with Ray's class, which waits for checkpoints and starts clones in ways private to Tune.

A class of this project would need more of Tune's private names than Ray's class does: a save that can be waited for, a
pause without a checkpoint, and a trial's latest checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler

from gaudi_tune.on_ray.scheduler import SweepScheduler
from gaudi_tune.private.ray_tune import NO_SEARCHER, PBT_STATE, pbt_states
from gaudi_tune.sweep.policies.schedulers.population import Population
from gaudi_tune.sweep.policies.schedulers.scheduler import CONTINUE
from gaudi_tune.sweep.record.events import Decision, Reported

if TYPE_CHECKING:
    from gaudi_tune.on_ray.sweep_run import SweepRun


class PopulationScheduler(SweepScheduler):
    """Asks Ray's class which trials take over the weights of others, and the policy with which hyperparameters.

    The study keeps the configuration that a trial began with, and ``pbt_policy_*.txt`` in the sweep's folder has the
    changes. Ray draws from Python's global generator, so no two runs are alike.
    """

    def __init__(self, run: SweepRun, policy: Population) -> None:
        super().__init__(run, policy)
        budget, objective = run.plan.budget, run.plan.objectives[0]
        self._exchange = PopulationBasedTraining(
            time_attr=budget.unit,
            metric=objective.name,
            mode=objective.mode,
            perturbation_interval=budget.exchange_every(),
            custom_explore_fn=policy.explore,
        )
        self._restored_states: Mapping[str, Mapping[str, Any]] = {}
        """What was known of each trial before the sweep was interrupted."""

    def decide(
        self, tune_controller: Any, trial: Trial, result: dict[str, Any], report: Reported
    ) -> tuple[Decision, str]:
        """Ask Ray's class, which pauses a trial itself to make it a clone, and then answers NOOP."""
        answer = self._exchange.on_trial_result(tune_controller, trial, result)
        return (Decision("pause", "by pbt") if answer == TrialScheduler.PAUSE else CONTINUE), answer

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add the trial as if there were no searcher, the one thing that Ray's class asks its controller for."""
        super().on_trial_add(tune_controller, trial)
        self._exchange.on_trial_add(NO_SEARCHER, trial)
        for name, value in self._restored_states.get(trial.trial_id, {}).items():
            setattr(pbt_states(self._exchange)[trial], name, value)

    def _next_paused(self, tune_controller: Any) -> Trial | None:
        """Return the paused trial that trained longest ago, once no trial is pending."""
        trials = tune_controller.get_trials()
        if any(trial.status == Trial.PENDING for trial in trials):
            return None
        paused = [trial for trial in trials if trial.status == Trial.PAUSED]
        return min(paused, key=lambda trial: pbt_states(self._exchange)[trial].last_train_time, default=None)

    def may_be_taken_over(self, trial: Trial, progress: int) -> bool:
        """Whether another trial may still continue from what ``trial``, which has not ended, saved at ``progress``.

        Ray's class has each trial save when it compares it with the others, which may then take over that checkpoint.
        """
        state = pbt_states(self._exchange).get(trial)
        return state is not None and progress >= state.last_perturbation_time

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know: scores and times of all trials, but no checkpoint.

        No trial is cloned until it has written a checkpoint again.
        """
        return {
            trial.trial_id: {name: getattr(state, name) for name in PBT_STATE}
            for trial, state in pbt_states(self._exchange).items()
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned, before the trials are added again."""
        self._restored_states = state
