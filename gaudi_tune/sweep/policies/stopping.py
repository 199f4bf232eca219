"""When a sweep ends before its last trial has: its limits are reached, or every trial fails with the same error."""

from __future__ import annotations

import math
import re
import time

from gaudi_tune.base import names
from gaudi_tune.base.words import duration, last_line
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.devices.device import OUT_OF_MEMORY
from gaudi_tune.group.errors import UNUSABLE_REPORT
from gaudi_tune.sweep.record.events import Ending
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

VARIES = re.compile(
    r"""
      (?<!\w)(?P<quote>['"])[^'"]*/[^'"]*(?P=quote)(?!\w)  # a path in quotes
    | (?<![\w.])~?/[^\s'",;:()]+  # an absolute path
    | \b[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}\b  # a UUID
    | 0x[\da-f]+  # an address
    | ((?<![\w.)\]])[-+])?\d[\d.]*(e[-+]?\d+)?(?!\w)  # a number
    | [\da-f]*\d[\da-f.]*  # what else has digits, such as a hash
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""What varies in one error from trial to trial."""
LOOK_EVERY_S = 1.0
"""How often to look whether the confirmation still fits: it goes through all trials."""


class StoppingRules:
    """The rules that end a sweep, each from an option."""

    def __init__(self, options: SweepOptions) -> None:
        """Start the clock of ``--time-budget``."""
        self._options = options
        self._began = self._looked_at = time.monotonic()
        self._confirms_too_long = False

    def out_of_time(self) -> Ending | None:
        """Return why the sweep ends, if its time is over: at once, for what its trials have reached is saved."""
        if self._seconds_left() > 0:
            return None
        instead = ", and the confirmation would have taken more than half of it" if self._confirms_too_long else ""
        return Ending(f"{self._time_budget()} is spent{instead}", status=0, at_once=True)

    def last_in_time(self, trial: TrialState) -> bool:
        """Whether the next report of a trial would come too late, if it takes as long as the last."""
        return self._seconds_left() <= trial.metrics.get(names.STEP_SECONDS, 0.0)

    def no_more_trials(self, state: SweepState, groups: int) -> bool:
        """Whether no more trials may begin: those that run and the confirmation need the time that is left.

        Where they need more than half of the whole time budget, the search has all of it.
        """
        minutes = self._options.time_budget
        if minutes is None or not state.seeds or time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return False
        self._looked_at = time.monotonic()
        needed = state.seconds_to_finish(groups)
        if needed is None or self._seconds_left() > needed:
            return False
        self._confirms_too_long = needed > 60 * minutes / 2
        return not self._confirms_too_long

    def cut_short(self) -> Ending:
        """Return why a sweep has ended whose search :meth:`no_more_trials` cut short."""
        return Ending(f"{self._time_budget()} left no time for more trials", status=0, at_once=True)

    def _time_budget(self) -> str:
        return f"its time budget of {duration(60 * (self._options.time_budget or 0))}"

    def _seconds_left(self) -> float:
        """Return the seconds that are left of ``--time-budget``."""
        minutes = self._options.time_budget
        return math.inf if minutes is None else self._began + 60 * minutes - time.monotonic()

    def after_report(self, state: SweepState) -> Ending | None:
        """Return why the sweep ends after a report, if it does: the target is reached."""
        target, best = self._options.target, state.leader
        if target is None or best is None or state.objective.better(target, than=best[0]):
            return None
        return Ending(
            f"{state.objective.name} {best[0]:.4g} reached the target of {target:g}", status=0, option="target"
        )

    def after_trial(self, state: SweepState) -> Ending | None:
        """Return why the sweep ends after a trial has paused or ended, if it does: no better value comes, all fail
        alike, or nothing that the train loop reports can be used."""
        if self._options.patience is not None:
            pauses_good_ones = self._options.scheduler == "pbt"
            since_best = sum(state.trials[n].has_ended or not pauses_good_ones for n in state.since_best)
            if since_best >= self._options.patience:
                why = f"{since_best} trials have paused or ended since the best value was reported"
                return Ending(why, status=0, option="patience")
        failed = state.ended_in_a_row[-1:]
        if failed and UNUSABLE_REPORT in failed[0].reason and not any(trial.metrics for trial in state.trials.values()):
            return Ending(f"every trial would fail like this: {failed[0].reason}", status=1, at_once=True)
        limit = self._options.same_errors or 0
        diverged = [trial.status == "failed" and not trial.raised for trial in state.ended_in_a_row[-2 * limit :]]
        if limit and state.leader is None and len(diverged) == 2 * limit and all(diverged):
            why = state.ended_in_a_row[-1].reason
            return Ending(f"{len(diverged)} trials in a row diverged, and no trial did better: {why}", status=1)
        last = state.ended_in_a_row[-limit:] if limit else []
        kinds = {kind_of_error(trial.reason) if trial.raised else "" for trial in last}
        if limit and len(last) == limit and len(kinds) == 1 and kinds != {""}:
            why = last_line(state.ended_in_a_row[-1].reason)
            return Ending(f"{limit} trials in a row failed alike: {why}", status=1)
        return None


def kind_of_error(reason: str) -> str:
    """Return the last line of an error without what varies from trial to trial: paths, UUIDs, numbers, addresses.

    Returns:
        "" for an error that comes from the trial's own configuration: the device's memory was full.
    """
    error = last_line(reason)
    return "" if OUT_OF_MEMORY in error else VARIES.sub("#", error)
