"""The rules that end a sweep before its last trial has: a limit is reached, or every trial fails alike."""

from __future__ import annotations

import math
import time

from gaudi_tune.base import names
from gaudi_tune.base.failure import FailureKind
from gaudi_tune.base.words import duration, last_line
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.sweep.policies.schedulers.factory import scheduler_kind
from gaudi_tune.sweep.record.events import Ending
from gaudi_tune.sweep.record.forecast import Forecast
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

CHECK_EVERY_S = 1.0
"""Seconds from one check whether the confirmation still fits to the next: a check goes through all trials."""


class StoppingRules:
    """The rules that end a sweep, each from an option."""

    def __init__(self, options: SweepOptions) -> None:
        """Take the rules of the options."""
        self._options = options
        self._confirmation_is_too_long = False
        self.start_clock()

    def start_clock(self) -> None:
        """Start the clock of ``--time-budget``, again if it runs."""
        self._started_at = self._checked_at = time.monotonic()

    def out_of_time(self) -> Ending | None:
        """Return why the sweep ends, if its time is over. It ends at once: what its trials have reached is saved."""
        if self._seconds_left() > 0:
            return None
        skipped = ""
        if self._confirmation_is_too_long:
            skipped = ", and the confirmation would have taken more than half of it"
        return Ending(f"{self._time_budget()} is spent{skipped}", status=0, at_once=True)

    def is_last_report(self, trial: TrialState) -> bool:
        """Whether the next report of a trial would come after the time is over, if it takes as long as the last."""
        return self._seconds_left() <= trial.metrics.get(names.STEP_SECONDS, 0.0)

    def no_more_trials(self, state: SweepState, groups: int) -> bool:
        """Whether no more trials may begin, because running trials and the confirmation need the time that is left.

        If they need more than half of the whole time budget, there will be no confirmation, and the search has it all.
        """
        minutes = self._options.time_budget
        if minutes is None or not state.seeds or time.monotonic() - self._checked_at < CHECK_EVERY_S:
            return False
        self._checked_at = time.monotonic()
        seconds = Forecast(state).seconds_to_finish(groups)
        if seconds is None or self._seconds_left() > seconds:
            return False
        self._confirmation_is_too_long = seconds > 60 * minutes / 2
        return not self._confirmation_is_too_long

    def cut_short(self) -> Ending:
        """Return why a sweep has ended whose search :meth:`no_more_trials` cut short."""
        return Ending(f"{self._time_budget()} left no time for more trials", status=0, at_once=True)

    def _time_budget(self) -> str:
        return f"its time budget of {duration(60 * (self._options.time_budget or 0))}"

    def _seconds_left(self) -> float:
        """Return how much of ``--time-budget`` is left; infinite without one."""
        minutes = self._options.time_budget
        return math.inf if minutes is None else self._started_at + 60 * minutes - time.monotonic()

    def after_report(self, state: SweepState) -> Ending | None:
        """Return why the sweep ends after a report, if it does: the target is reached."""
        target, leader = self._options.target, state.leader
        if target is None or leader is None:
            return None
        best_value, _ = leader
        if state.objective.better(target, than=best_value):
            return None
        reason = f"{state.objective.name} {best_value:.4g} reached the target of {target:g}"
        return Ending(reason, status=0, option="target")

    def after_trial(self, state: SweepState) -> Ending | None:
        """Return why the sweep ends after a trial has paused or ended, if it does."""
        return (
            self._out_of_patience(state)
            or self._unusable_reports(state)
            or self._all_diverged(state)
            or self._failed_alike(state)
        )

    def _out_of_patience(self, state: SweepState) -> Ending | None:
        """Return an ending if more trials than ``--patience`` allows have brought nothing better."""
        if self._options.patience is None:
            return None
        # Where good trials pause, too, only those count that have ended.
        counts_paused = not scheduler_kind(self._options.scheduler).clones
        since_best = sum(counts_paused or state.trials[number].has_ended for number in state.since_best)
        if since_best < self._options.patience:
            return None
        reason = f"{since_best} trials have paused or ended since the best value was reported"
        return Ending(reason, status=0, option="patience")

    def _unusable_reports(self, state: SweepState) -> Ending | None:
        """Return an ending if nothing that the train loop has reported can be used, which will not change."""
        if not state.ended_in_a_row or not _failed_with(FailureKind.UNUSABLE_REPORT, state.ended_in_a_row[-1]):
            return None
        if any(trial.metrics for trial in state.trials.values()):
            return None
        reason = state.ended_in_a_row[-1].reason
        return Ending(f"every trial would fail like this: {reason}", status=1, at_once=True)

    def _all_diverged(self, state: SweepState) -> Ending | None:
        """Return an ending if twice ``--same-errors`` trials in a row diverged, and no trial has reported a value."""
        count = 2 * (self._options.same_errors or 0)
        trials = state.ended_in_a_row[-count:]
        if count == 0 or len(trials) < count or state.leader is not None:
            return None
        if not all(_failed_with(FailureKind.DIVERGED, trial) for trial in trials):
            return None
        return Ending(f"{count} trials in a row diverged, and no trial did better: {trials[-1].reason}", status=1)

    def _failed_alike(self, state: SweepState) -> Ending | None:
        """Return an ending if an error with the same cause ended ``--same-errors`` trials in a row.

        Trials that do not fit into the device's memory do not count: their own configurations are the cause.
        """
        count = self._options.same_errors or 0
        trials = state.ended_in_a_row[-count:]
        if count == 0 or len(trials) < count or not all(trial.raised for trial in trials):
            return None
        causes = {trial.failure.cause for trial in trials if trial.failure is not None}
        if len(causes) > 1 or _failed_with(FailureKind.OUT_OF_MEMORY, trials[-1]):
            return None
        return Ending(f"{count} trials in a row failed alike: {last_line(trials[-1].reason)}", status=1)


def _failed_with(kind: FailureKind, trial: TrialState) -> bool:
    return trial.failure is not None and trial.failure.kind == kind
