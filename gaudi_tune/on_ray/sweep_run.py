"""A running sweep: what Tune says of its trials becomes events, which the record, the study and the views get in turn.

The path of a report, from the train loop to MLflow, with the file of each step:

1. ``training/session.py``: the train loop calls ``report()``. ``group/worker.py`` sends what every rank reported.
2. ``group/warm_trainable.py``: the trial actor checks the report, adds the time that it took, and returns it to Tune.
3. ``on_ray/scheduler.py``: Tune calls its scheduler first, which hands the report to ``on_ray/reports.py``. There

   a. the record takes it (``sweep/record/sweep_state.py``),
   b. it is decided what becomes of the trial (``sweep/policies/schedulers``), and the record takes that,
   c. the study takes it from the record (``sweep/search/proposer.py``),
   d. devices that are free move to the trial, or from it (``sweep/policies/growth.py``),
   e. rules may end the sweep (``sweep/policies/stopping.py``),
   f. page, pictures and trackers are shown both events (``on_ray/announcer.py``, ``show``); ``show/trackers`` writes
      them to an outbox, from which another process sends them to MLflow.

4. ``on_ray/tune_searcher.py``: Tune calls its searcher, which passes the result on to a search algorithm of the user.
5. Here, :meth:`SweepRun.on_trial_result` asks for a checkpoint if one is wanted. Tune does what 3b decided.
6. If the trial ends, :meth:`SweepRun.on_trial_complete` follows, in the same order: record, study, views, rules.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.result import SHOULD_CHECKPOINT

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.announcer import Announcer
from gaudi_tune.on_ray.checkpoint_cleanup import CheckpointCleanup
from gaudi_tune.on_ray.conclusion import Conclusion
from gaudi_tune.on_ray.early_end import EarlyEnd
from gaudi_tune.on_ray.exit_without_ray import Leaving
from gaudi_tune.on_ray.given.user_callback import UserCallback
from gaudi_tune.on_ray.given.user_stop import UserStop
from gaudi_tune.on_ray.scheduler import SweepScheduler
from gaudi_tune.on_ray.signals import INTERRUPTED
from gaudi_tune.on_ray.state_on_disk import StateOnDisk
from gaudi_tune.on_ray.steering import Steering
from gaudi_tune.on_ray.trials import give_last_report, last_failure, number_of
from gaudi_tune.on_ray.tune_searcher import TuneSearcher
from gaudi_tune.private.ray_core import free_orphans, waiting_actors
from gaudi_tune.private.ray_tune import actor_of
from gaudi_tune.storage.mirror import Mirror
from gaudi_tune.sweep.policies.checkpoints import wants_checkpoint
from gaudi_tune.sweep.policies.growth import Growth
from gaudi_tune.sweep.policies.stopping import StoppingRules
from gaudi_tune.sweep.record import events
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState
from gaudi_tune.training.end_notice import withdraw_notice

logger = logging.getLogger(__name__)

FREE_EVERY_S = 2.0
"""Seconds between two looks for devices that a failed group left booked. Each is one request to Ray, of about 1 ms."""


@dataclass(eq=False, kw_only=True)
class SweepRun(KeptInProcess, tune.Callback):
    """The parts of one sweep in this process, as :func:`~gaudi_tune.on_ray.assemble.assemble` makes them.

    It is Tune's callback, too: Tune's event loop calls its methods, one at a time.
    """

    plan: Plan
    state: SweepState
    """The record."""
    announcer: Announcer
    """Shows events to views and trackers."""
    early_end: EarlyEnd
    steering: Steering
    """Takes requests of people, from any thread."""
    growth: Growth
    stopping: StoppingRules
    user_stop: UserStop
    scheduler: SweepScheduler
    """The scheduler that Tune calls."""
    searcher: TuneSearcher
    """The searcher that Tune asks."""
    user_callbacks: Sequence[UserCallback]
    on_disk: StateOnDisk
    """Keeps the state on disk; Tune calls it as another callback."""
    mirror: Mirror | None
    """Brings the sweep's folder to its storage; None if it has none."""
    conclusion: Conclusion
    leaving: Leaving
    cleanup: CheckpointCleanup

    _shown_errors: set[tuple[FailureKind, str]] = field(default_factory=set, init=False)
    """Causes of errors whose traceback was shown."""
    _freed_at: float = field(default=0.0, init=False)
    _is_set_up: bool = field(default=False, init=False)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The content of summary.json; None until the sweep is over."""
        return self.conclusion.summary

    # Tune calls these.

    def setup(self, **info: Any) -> None:
        """Take over the signals and begin.

        Raises a SweepError if Tune runs in a thread, where nothing can end it early, and an option may need that; or
        if Tune has not read the state of a resumed sweep.
        """
        logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)  # the sweep itself says how it ended
        # Tune would warn of each trial without a file of reports, such as one that ended before its first report.
        logging.getLogger("ray.tune.analysis.experiment_analysis").setLevel(logging.ERROR)
        # Tune would warn of each step of half a second. A user cannot avoid them: one imports the drawing libraries.
        logging.getLogger("ray.tune.utils.util").setLevel(logging.ERROR)
        self.on_disk.check_restored()
        self.early_end.signals.take_over(self.plan.options.limits)
        withdraw_notice(self.plan.folder)
        self._is_set_up = True
        self.stopping.start_clock()
        self.announcer.tell(events.SweepBegan())
        self.leaving.watch.start()

    def on_trial_start(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that a trial has its worker group, perhaps the one of a trial that the scheduler has just paused."""
        if self.scheduler.policy.clones:
            self._note_unasked_pauses(trials)
        number = number_of(trial)
        self.growth.trial_began(number)
        self.announcer.tell(events.TrialBegan(trial=number, trial_id=trial.trial_id, config=trial.config))

    def _note_unasked_pauses(self, trials: Sequence[Trial]) -> None:
        """Note the trials that the scheduler has paused otherwise than by its answer to their report."""
        for trial in trials:
            if trial.status != Trial.PAUSED:
                continue
            trial_state = self.state.trials.get(number_of(trial))
            if trial_state is not None and trial_state.status == "running":
                pause = events.Decision("pause", f"by {self.plan.options.scheduler}")
                self.announcer.tell(events.Decided(trial=trial_state.number, decision=pause))

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Ask for a checkpoint by an entry in the result if one is wanted, as Tune's own schedulers do."""
        trial_state = self.state.trials[number_of(trial)]
        if trial_state.to_save is not None and self._wants_checkpoint(trial_state):
            result[SHOULD_CHECKPOINT] = True

    def _wants_checkpoint(self, trial_state: TrialState) -> bool:
        return (
            self.growth.is_moving(trial_state.number)
            or self.stopping.is_last_report(trial_state)
            or wants_checkpoint(self.state, trial_state, 60 * (self.plan.options.checkpoint_minutes or 0))
        )

    def on_checkpoint(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, checkpoint: tune.Checkpoint, **info: Any
    ) -> None:
        """Note a checkpoint."""
        number, place = number_of(trial), Path(checkpoint.path).relative_to(self.plan.folder)
        self.announcer.tell(events.CheckpointSaved(trial=number, place=str(place)))
        self.cleanup.request()

    def on_trial_recover(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that a trial lost its trial actor and will go on."""
        # A trial that is not in the state has not begun: its actor could not be made, and is made again.
        if number_of(trial) in self.state.trials:
            self.announcer.tell(events.TrialRecovered(trial=number_of(trial)))

    def on_trial_complete(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that a trial ended without an error: as decided, or because its train loop returned."""
        trial_state = self.state.trials.get(number_of(trial))
        if trial_state is None or trial_state.has_ended:
            return
        verdict, reason, failure = trial_state.decision
        waited_in_vain = verdict == "pause" and not trial_state.to_stop
        if verdict == "continue":
            budget = self.plan.budget
            verdict = "finished" if trial_state.step >= budget.total else "stopped early"
            reason = f"its train loop returned after {budget.unit} {trial_state.step} of {budget.total}"
        elif verdict == "pause":
            verdict = "stopped early"
            reason = events.BY_HAND.reason if trial_state.to_stop else f"{reason}, and it was not promoted later"
        ended = events.TrialEnded(trial=trial_state.number, outcome=verdict, reason=reason, failure=failure)
        self._end_trial(trial, ended)
        if waited_in_vain:
            self.cleanup.drop(trial_state)

    def on_trial_error(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that an error ended a trial."""
        number = number_of(trial)
        if number not in self.state.trials:  # its trial actor could not be made, so it has not begun
            self.on_trial_start(iteration, [], trial)
        failure = last_failure(trial) or Failure(FailureKind.GROUP_ERROR, "an error ended it")
        if "\n" in failure.text and failure.cause not in self._shown_errors:
            self._shown_errors.add(failure.cause)
            logger.error("trial %03d failed with this error (shown once):\n%s", number, failure.text)
        self._end_trial(trial, events.TrialEnded(trial=number, outcome="failed", reason=failure.text, failure=failure))

    def _end_trial(self, trial: Trial, event: events.TrialEnded) -> None:
        self.state.apply(event)
        give_last_report(trial, self.state.trials[event.trial])
        self.searcher.ended(self.state.trials[event.trial])
        self.announcer.show(event)
        self.cleanup.request()
        self.early_end.ask(self.stopping.after_trial(self.state))

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Look whether this process will be gone soon, before any call of Ray."""
        self.leaving.leave_if_signalled()

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Do what is due."""
        self.steering.grant_all()
        self.announcer.tick()
        self.cleanup.run_if_due(trials)
        if time.monotonic() - self._freed_at >= FREE_EVERY_S:
            free_orphans()
            self._freed_at = time.monotonic()
        has_trials_to_begin = self.searcher.proposer.n_proposed < self.state.num_trials
        if has_trials_to_begin and self.stopping.no_more_trials(self.state, self.plan.groups):
            self.steering.cut_search()
        if self.mirror is not None and self.mirror.rival_host:
            self.early_end.ask(events.Ending(f"{self.mirror.rival_host} has taken it", status=1, at_once=True))
        self.early_end.ask(self.stopping.out_of_time() or self.user_stop.why_sweep_ends())
        # Last, at the end of Tune's step: an ending sweep proposes nothing, and while no trial runs, Tune would wait
        # ten minutes for a proposal in the rest of the step.
        self.leaving.leave_if_signalled()
        self.early_end.check_signals()
        if self.state.ending is not None:  # only then: this goes through all trials
            self.early_end.interrupt_when_saved(self._trials_that_may_save(trials))
            if self.early_end.interrupted:  # Tune will end its trials, which then could not continue
                self.on_disk.keep(trials)
        elif self.searcher.proposer.is_finished and not self.mirror and all(trial.is_finished() for trial in trials):
            # This was Tune's last step. The worker groups end meanwhile, and Tune waits for that afterwards. A mirror
            # still has to send what Tune writes then.
            self._conclude(trials)

    def _trials_that_may_save(self, trials: Sequence[Trial]) -> set[int]:
        """Return the numbers of the trials that run or are being saved.

        Leaves out trials that have nothing to save and may wait for ever for their devices, because another sweep has
        these, or a held trial has grown to them.
        """
        waiting, without_devices = waiting_actors(), set[int]()
        if waiting:
            without_devices = {number_of(trial) for trial in trials if actor_of(trial) in waiting}
        running = self.growth.trials_with_devices()
        return (running - without_devices) | self.scheduler.pausing()

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Close everything: the sweep is over."""
        free_orphans()
        self.leaving.watch.stop()  # nothing that follows needs Ray
        if self.summary is None:
            self._conclude(trials)
        self.early_end.signals.give_back(interrupted=self.early_end.interrupted)

    def _conclude(self, trials: Sequence[Trial]) -> None:
        """Write and print how the sweep ended. Tune may still end the worker groups."""
        if not self.state.open_trials:  # otherwise it was kept before Tune ended these, which can so continue
            self.on_disk.keep(trials)
        if self.state.cut and self.state.ending is None:
            self.early_end.ask(self.stopping.cut_short())
        self.state.close()
        self.cleanup.finish(trials)
        self.conclusion.write()
        self.conclusion.show()

    # The tuner calls this.

    def fail(self, error: BaseException) -> None:
        """Close everything after an error that Tune raised, perhaps before it said that the sweep is over.

        Does nothing if the sweep had not begun.
        """
        if not self._is_set_up:
            return
        self.leaving.watch.stop()  # it would end this process when Ray ends
        if self.summary is None:
            other_ending = events.Ending(f"an error outside the trials: {error!r}", status=1, at_once=True)
            # Tune no longer handles Ctrl-C once it has begun to end.
            self.early_end.ask(INTERRUPTED if isinstance(error, KeyboardInterrupt) else other_ending)
        self.conclusion.write()
        self.early_end.signals.give_back(interrupted=self.early_end.interrupted)
