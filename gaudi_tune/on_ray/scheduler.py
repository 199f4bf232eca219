"""The scheduler that Tune calls: it hands each result to the sweep, and does for Tune what the policy decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from gaudi_tune.base import names
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.on_ray.trials import number_of
from gaudi_tune.private.ray_tune import end_idle_actors, end_paused, training_of
from gaudi_tune.sweep.policies.schedulers.scheduler import Scheduler
from gaudi_tune.sweep.record.events import Decision, Reported, Verdict
from gaudi_tune.sweep.record.sweep_state import SweepState

ANSWERS: Mapping[Verdict, str] = {"continue": TrialScheduler.CONTINUE, "pause": TrialScheduler.PAUSE}
"""The answers to Tune where a trial does not end."""


class SweepScheduler(KeptInProcess, TrialScheduler):
    """Maps the policy, the scheduler that the user chose, to Tune.

    The policy speaks of trials by their numbers, and reads the record. This class finds Tune's trials, pauses, starts
    and ends them, and counts those that wait.

    It never names a pending trial, as Ray's schedulers do over and over. While a new trial actor starts for that trial,
    the trial would be given each actor that becomes free instead, and Tune would drop the actor that is starting (Ray
    2.60). If trials end more often than an actor takes to start, a lost worker group would then never be replaced.
    """

    def __init__(
        self,
        policy: Scheduler,
        state: SweepState,
        groups: int,
        *,
        reported: Callable[[SweepScheduler, Any, Trial, dict[str, Any]], str],
        trials_wait_for_devices: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin without a trial.

        Args:
            policy: Decides what becomes of the trials of the search.
            state: The record of the sweep.
            groups: How many trials train at a time.
            reported: Handles a result, for which it may ask this scheduler to :meth:`decide`; returns the answer to
                Tune.
            trials_wait_for_devices: Whether a trial may wait for devices to which another has grown.
        """
        super().__init__()
        self.policy, self._state, self._groups = policy, state, groups
        self._reported, self._trials_wait_for_devices = reported, trials_wait_for_devices
        self.trials: dict[int, Trial] = {}
        """Tune's trials by their numbers, those of the confirmation among them."""
        self.tune_controller: Any = None  # which Tune brings with the first trial

    def pausing(self) -> set[int]:
        """Return the trials that are being saved before they pause. Until then they have their groups."""
        return {number_of(trial) for trial in self._paused_in_training() if trial.status == Trial.RUNNING}

    def count_waiting(self) -> int:
        """Return how many trials need no group: those that are paused, in Tune, too, and were not promoted since.

        While a trial is being saved, Tune would start another trial actor for a new proposal, and end it unused. The
        trials that train at the same time are the population of a policy that clones, so none of them waits.
        """
        if self.policy.clones:
            return 0
        trials = self._state.trials
        promoted = {number for number in self._promoted() if trials[number].status == "paused"}
        needing_groups = promoted.union(map(number_of, self._paused_in_training()))
        return len(self._state.paused) - len(needing_groups)

    def _paused_in_training(self) -> list[Trial]:
        """Return Tune's trials that have groups or are about to, and are paused for the record: few of many."""
        trials = self._state.trials
        return [
            trial
            for trial in (training_of(self.tune_controller) if self.trials else ())
            if (number := number_of(trial)) in trials and trials[number].status == "paused"
        ]

    def _promoted(self) -> set[int]:
        """Return the trials that are paused and continue as soon as there are groups for them."""
        return set(self.policy.next_trials(self._state))

    @property
    def needs_checkpoints(self) -> bool:
        """Whether the sweep cannot go on with a train loop that begins again after a pause."""
        return False

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return what follows from a result. Tune calls this before it calls the searcher and the callbacks."""
        return self._reported(self, tune_controller, trial, result)

    def decide(
        self, tune_controller: Any, trial: Trial, result: dict[str, Any], report: Reported
    ) -> tuple[Decision, str]:
        """Return what the policy decides after a report of a trial of the search, and the answer to Tune."""
        decision = self.policy.decide(self._state, self._state.trials[report.trial], report)
        return decision, ANSWERS.get(decision.verdict, TrialScheduler.STOP)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Note that Tune has a trial; one that was paused before the sweep was resumed stays so."""
        self.tune_controller, number = tune_controller, number_of(trial)
        self.trials[number] = trial
        if trial.config.get(names.CONFIRMS):  # a trial of the confirmation is never stopped early
            return
        self.policy.trial_added(number)
        trial_state = self._state.trials.get(number)
        was_paused = trial_state is not None and trial_state.status == "paused" and not self.policy.clones
        if was_paused and trial.status == Trial.PENDING:
            trial.set_status(Trial.PAUSED)  # before Tune files it: Tune starts pending trials, groups or not

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Note that a trial failed, or goes on after a failure."""
        self.policy.trial_failed(number_of(trial))

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:
        """Note that a trial has ended."""
        self.policy.trial_ended(number_of(trial))

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Note that a paused trial has ended."""
        self.policy.trial_ended(number_of(trial))

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the trial to start next, or None to let Tune start a pending one."""
        self._end_paused_by_hand(tune_controller)
        next_trial = self._next_paused(tune_controller)
        if next_trial is None and self._trials_wait_for_devices():
            end_idle_actors(tune_controller)
        return next_trial

    def _end_paused_by_hand(self, tune_controller: Any) -> None:
        state = self._state
        if not state.steered or self.policy.clones:  # clones soon continue, and end then
            return
        for trial_state in state.paused:
            trial = self.trials[trial_state.number]
            if trial_state.to_stop and trial.status == Trial.PAUSED:
                end_paused(tune_controller, trial)

    def _next_paused(self, tune_controller: Any) -> Trial | None:
        """Return a paused trial that was promoted, as soon as there is a group for it; end those that wait in vain."""
        promoted = self.policy.next_trials(self._state)
        trials_to_end = () if promoted else self.policy.trials_to_end(self._state)
        if not promoted and not trials_to_end:
            return None
        training = training_of(tune_controller)
        if len(training) < self._groups:
            for number in promoted:
                if self.trials[number].status == Trial.PAUSED:  # it may still be saved
                    return self.trials[number]
        if all(trial.config.get(names.CONFIRMS) for trial in training):
            for number in trials_to_end:
                end_paused(tune_controller, self.trials[number])
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
