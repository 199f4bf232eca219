"""The scheduler that Tune calls: it hands each result to the sweep, and the sweep's decision to Tune."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from gaudi_tune.base import names
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.on_ray.trials import last_failure
from gaudi_tune.private.ray_tune import end_idle_actors, end_paused
from gaudi_tune.sweep.policies.schedulers.chosen import ChosenScheduler

if TYPE_CHECKING:
    from gaudi_tune.on_ray.sweep_run import SweepRun


class SweepScheduler(KeptInProcess, TrialScheduler):
    """Asks the sweep about each result, and leaves the rest to the scheduler that the user chose, the policy."""

    def __init__(self, run: SweepRun, policy: ChosenScheduler) -> None:
        super().__init__()
        self._run, self._policy = run, policy

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return what follows from a result. Tune calls this before it tells the searcher and the callbacks."""
        return self._run.reported(tune_controller, trial, result)

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Pass on the objective."""
        super().set_search_properties(metric, mode, **spec)
        return self._policy.set_search_properties(metric, mode, **spec)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Pass on that Tune has a trial."""
        self._run.on_disk.trial_added(trial)
        if not trial.config.get(names.CONFIRMS):  # a trial of the confirmation is never stopped early
            self._policy.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Pass on that a trial failed, or goes on after a failure. Tune tells the searcher later."""
        failure = last_failure(trial)
        if failure is not None:
            self._run.searcher.on_error(trial.trial_id, failure)
        self._policy.on_trial_error(tune_controller, trial)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:
        """Pass on that a trial has ended."""
        self._policy.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Pass on that a paused trial has ended."""
        self._policy.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the trial to start next, or None to let Tune choose. Paused trials that are to stop end first."""
        state = self._run.state
        if state.steered and self._run.plan.options.scheduler != "pbt":  # pbt soon continues all paused trials
            stopped = {trial.trial_id for trial in state.paused if trial.to_stop}
            if stopped:  # only then go through all trials
                for trial in tune_controller.get_trials():
                    if trial.status == Trial.PAUSED and trial.trial_id in stopped:
                        end_paused(tune_controller, trial)
        next_trial = self._policy.choose_trial_to_run(tune_controller)
        if next_trial is None and self._run.trials_wait_for_devices:
            end_idle_actors(tune_controller)
        return next_trial
