"""When a sweep ends before its last trial has: its limits are reached, or every trial fails with the same error."""

from __future__ import annotations

import re
import time

from experiments.sweep.define.options import SweepOptions
from experiments.sweep.state.events import Ending
from experiments.sweep.state.sweep_state import SweepState
from trainables.runtime.devices.device import OUT_OF_MEMORY

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


class StoppingRules:
    """The rules that end a sweep, each from an option."""

    def __init__(self, options: SweepOptions) -> None:
        """Start the clock of ``--time-budget``."""
        self._options = options
        self._began = time.monotonic()

    def out_of_time(self) -> Ending | None:
        """Return why the sweep ends, if its time is over."""
        minutes = self._options.time_budget
        if minutes is None or time.monotonic() - self._began < 60 * minutes:
            return None
        return Ending(f"its time budget of {minutes:g} minutes is spent", status=0)

    def after_report(self, state: SweepState) -> Ending | None:
        """Return why the sweep ends after a report, if it does: the target is reached."""
        target, best = self._options.target, state.leader
        if target is None or best is None or state.objective.better(target, than=best[0]):
            return None
        return Ending(f"{state.objective.name} {best[0]:.4g} reached the target of {target:g}", status=0)

    def after_trial(self, state: SweepState) -> Ending | None:
        """Return why the sweep ends after a trial has paused or ended, if it does: no better value comes, or all fail
        alike."""
        pauses_good_ones = self._options.scheduler == "pbt"
        since_best = sum(state.trials[n].has_ended or not pauses_good_ones for n in state.since_best)
        if self._options.patience is not None and since_best >= self._options.patience:
            return Ending(f"{since_best} trials have paused or ended since the best value was reported", status=0)
        limit = self._options.same_errors
        last = state.ended_here[-limit:] if limit else []
        kinds = {kind_of_error(trial.reason) if trial.raised else "" for trial in last}
        if limit and len(last) == limit and len(kinds) == 1 and kinds != {""}:
            last_line = state.ended_here[-1].reason.strip().splitlines()[-1]
            return Ending(f"{limit} trials in a row failed alike: {last_line}", status=1)
        return None


def kind_of_error(reason: str) -> str:
    """Return the last line of an error without what varies from trial to trial: paths, UUIDs, numbers, addresses.

    Returns:
        "" for an error that comes from the trial's own configuration: the device's memory was full.
    """
    last_line = "".join(reason.strip().splitlines()[-1:])
    return "" if OUT_OF_MEMORY in last_line else VARIES.sub("#", last_line)
