"""The scheduler that Tune calls: it hands each result to the sweep, and does for Tune what the policy decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from gaudi_tune.base import names
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.on_ray.trials import number_of
from gaudi_tune.private.ray_tune import end_idle_actors, end_paused, training_of
from gaudi_tune.sweep.policies.schedulers.scheduler import Scheduler
from gaudi_tune.sweep.record.events import Decision, Reported, Verdict

if TYPE_CHECKING:
    from gaudi_tune.on_ray.sweep_run import SweepRun

ANSWERS: Mapping[Verdict, str] = {"continue": TrialScheduler.CONTINUE, "pause": TrialScheduler.PAUSE}
"""What Tune is told where a trial does not end."""


class SweepScheduler(KeptInProcess, TrialScheduler):
    """Maps the policy, the scheduler that the user chose, to Tune.

    The policy speaks of trials by their numbers, and reads the record. This class finds Tune's trials, pauses, starts
    and ends them, and knows which of them wait.

    It never names a pending trial, as Ray's schedulers do over and over. While a new trial actor starts for that trial,
    the trial would be given each actor that becomes free instead, and Tune would drop the actor that is starting (Ray
    2.60). If trials end more often than an actor takes to start, a lost worker group would then never be replaced.
    """

    def __init__(self, run: SweepRun, policy: Scheduler) -> None:
        super().__init__()
        self._run, self.policy = run, policy
        self._trials: dict[int, Trial] = {}
        """Tune's trials of the search, by their numbers."""
        self._waiting: set[int] = set()
        """Trials that are paused and were not promoted since."""
        self.being_saved: set[int] = set()
        """Trials that are pausing and keep their groups until they are saved."""

    def count_waiting(self) -> int:
        """Return how many trials need no group because they are paused, and not promoted."""
        return len(self._waiting) - len(self._waiting & self.being_saved)

    @property
    def needs_checkpoints(self) -> bool:
        """Whether the sweep cannot go on with a train loop that begins again after a pause."""
        return False

    def pauses_now(self, trial: Trial, result: Mapping[str, Any]) -> bool:
        """Whether a trial may pause after this result."""
        return True

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return what follows from a result. Tune calls this before it tells the searcher and the callbacks."""
        return self._run.reported(tune_controller, trial, result)

    def decide(
        self, tune_controller: Any, trial: Trial, result: dict[str, Any], report: Reported
    ) -> tuple[Decision, str]:
        """Return what the policy decides after a report of a trial of the search, and the answer to Tune."""
        state = self._run.state
        decision = self.policy.decide(state, state.trials[report.trial], report)
        if decision.verdict == "pause":
            self._waiting.add(report.trial)
        self._waiting.difference_update(self.policy.next_trials(state))
        return decision, ANSWERS.get(decision.verdict, TrialScheduler.STOP)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Note that Tune has a trial; one that was paused before the sweep was resumed stays so."""
        self._run.on_disk.trial_added(trial)
        if trial.config.get(names.CONFIRMS):  # a trial of the confirmation is never stopped early
            return
        number = number_of(trial)
        self._trials[number] = trial
        self.policy.trial_added(number)
        if not trial.is_finished() and self.policy.is_waiting(number):
            self._waiting.add(number)
            if trial.status == Trial.PENDING:
                trial.set_status(Trial.PAUSED)  # before Tune files it: Tune starts pending trials, groups or not

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Note that a trial failed, or goes on after a failure."""
        self._waiting.discard(number_of(trial))
        self.policy.trial_failed(number_of(trial))

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:
        """Note that a trial has ended."""
        self._waiting.discard(number_of(trial))
        self.policy.trial_ended(number_of(trial))

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Note that a paused trial has ended."""
        self._waiting.discard(number_of(trial))
        self.policy.trial_ended(number_of(trial))

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the trial to start next, or None to let Tune start a pending one."""
        self._end_paused_by_hand(tune_controller)
        next_trial = self._next_paused(tune_controller)
        if next_trial is None and self._run.trials_wait_for_devices:
            end_idle_actors(tune_controller)
        return next_trial

    def _end_paused_by_hand(self, tune_controller: Any) -> None:
        state = self._run.state
        if not state.steered or self.policy.clones:  # clones soon continue, and end then
            return
        for trial_state in state.paused:
            trial = self._trials[trial_state.number]
            if trial_state.to_stop and trial.status == Trial.PAUSED:
                end_paused(tune_controller, trial)

    def _next_paused(self, tune_controller: Any) -> Trial | None:
        """Return a paused trial that was promoted, as soon as there is a group for it; end those that wait in vain."""
        state = self._run.state
        promoted = self.policy.next_trials(state)
        self._waiting.difference_update(promoted)
        trials_to_end = () if promoted else self.policy.trials_to_end(state)
        if not promoted and not trials_to_end:
            return None
        training = training_of(tune_controller)
        if len(training) < self._run.plan.groups:
            for number in promoted:
                if self._trials[number].status == Trial.PAUSED:  # it may still be saved
                    return self._trials[number]
        if all(trial.config.get(names.CONFIRMS) for trial in training):
            for number in trials_to_end:
                end_paused(tune_controller, self._trials[number])
        return None

    def may_be_taken_over(self, trial: Trial, progress: int) -> bool:
        """Whether another trial may still continue from what ``trial``, which has not ended, saved at ``progress``."""
        return False

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know. It is not copied, so the caller must write it at once."""
        return self.policy.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned, before the trials are added again."""
        self.policy.set_state(state)
