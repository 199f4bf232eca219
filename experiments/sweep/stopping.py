"""When a sweep ends before its last trial has: asked for, interrupted, or because every trial fails alike."""

from __future__ import annotations

import logging
import math
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ray.tune.experiment import Trial
from ray.tune.result import DONE, SHOULD_CHECKPOINT

from experiments.sweep.endings import TellsEndings
from experiments.sweep.errors import SweepError
from experiments.sweep.outcome import Outcome
from trainables.runtime.device import OUT_OF_MEMORY

if TYPE_CHECKING:
    from ray.tune.search import Searcher

    from experiments.sweep.plan import Plan

logger = logging.getLogger(__name__)

CTRL_C, TERMINATED = 130, 143
"""Exit status of a sweep that a signal ended, as shells have it."""
HEEDED: dict[int, int] = {signal.SIGINT: 2, signal.SIGTERM: 1}
"""How often a signal asks for an end of the sweep; once more ends the process."""
DIFFERS = re.compile(
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
"""What differs in one error from trial to trial."""


class Ending(NamedTuple):
    """Why a sweep ends early."""

    why: str
    status: int
    """Exit status of the process; 0 where it was asked for beforehand."""
    at_once: bool = False
    """Whether running trials are not waited for."""


class StopSweep(TellsEndings):
    """Ends the sweep by the rules of its options, and on SIGINT and SIGTERM, so that it can be resumed.

    Running trials first write a checkpoint at their next report. A second SIGINT ends the sweep without waiting for
    that, and so does SIGTERM, after which a process has seconds to live. A third SIGINT or a second SIGTERM ends the
    process, also where Tune's event loop stands still: a full disk is waited for there.
    """

    def __init__(self, plan: Plan, searcher: Searcher | None = None) -> None:
        """Take what the rules depend on.

        Args:
            plan: Of the sweep.
            searcher: Proposes nothing more once the sweep ends: what came would fail alike, or be cut short.
        """
        super().__init__(plan.experiment.metric, plan.budget)
        self._searcher, self._at_a_time = searcher, plan.groups
        self._options, self._better = plan.options, plan.experiment.better
        self.ending: Ending | None = None
        """Why the sweep ends early; None while it does not."""
        self._to_save: set[str] | None = None  # running trials whose checkpoint is waited for, once the sweep ends
        self._interrupted = False
        self._began = time.monotonic()
        self._best: float | None = None
        self._since_best = 0  # trials that ended since the best was reported
        self._last_error, self._alike = "", 0
        self._handlers: dict[int, Any] = {}
        self._taken: Counter[int] = Counter()  # signals, by number

    def setup(self, **info: Any) -> None:
        """Start the clock and take over the signals.

        Raises:
            SweepError: Tune runs in a thread, where nothing can end it early, and a rule wants to.
        """
        self._began = time.monotonic()
        # Its hint is how Tune itself would be restored.
        logging.getLogger("ray.tune.tune").setLevel(logging.ERROR)
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        elif self._options.limits:
            raise SweepError(f"{', '.join(self._options.limits)}: Tuner.fit() must run in the main thread for that")

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """See whether the target is reached; once the sweep ends, ask for a checkpoint, as Tune's schedulers do."""
        value, target = result.get(self._metric, math.nan), self._options.target
        if math.isfinite(value) and (self._best is None or self._better(value, than=self._best)):
            self._best, self._since_best = value, 0
        if target is not None and math.isfinite(value) and not self._better(target, than=value):
            self._end(Ending(f"{self._metric} {value:.4g} reached the target of {target:g}", status=0))
        if self.ending is not None and not result.get(DONE):
            result[SHOULD_CHECKPOINT] = True

    def on_checkpoint(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Note that the trial need not be waited for any longer."""
        if self._to_save is not None:
            self._to_save.discard(trial.trial_id)

    def trial_ended(self, trial: Trial, outcome: Outcome, reason: str | None) -> None:
        """Count the trials without a better one, and those that failed alike."""
        self._since_best += 1
        if self._options.patience is not None and self._since_best >= self._options.patience:
            self._end(Ending(f"{self._since_best} trials have ended since the best value was reported", status=0))
        error = kind_of_error(reason) if trial.error_file is not None and outcome == "failed" else ""
        self._alike = self._alike + 1 if error and error == self._last_error else bool(error)
        self._last_error = error
        if self._alike and self._alike == self._options.same_errors:
            last_line = str(reason).strip().splitlines()[-1]
            self._end(Ending(f"{self._alike} trials in a row failed alike: {last_line}", status=1))

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Look at the clock; once the sweep ends, end it when every running trial has its checkpoint."""
        minutes = self._options.time_budget
        if minutes is not None and time.monotonic() - self._began >= 60 * minutes:
            self._end(Ending(f"its time budget of {minutes:g} minutes is spent", status=0))
        if self.ending is None or self._interrupted:
            return
        running = {trial.trial_id for trial in trials if trial.status == Trial.RUNNING}
        self._to_save = running if self._to_save is None else self._to_save & running
        if self.ending.at_once or not self._to_save:
            self._interrupt()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Give the signals back."""
        for number, handler in self._handlers.items():
            if number != signal.SIGINT or not self._interrupted:  # which Tune gives back itself when interrupted
                signal.signal(number, handler)

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know."""
        return {"best": self._best, "since_best": self._since_best}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take what :meth:`get_state` returned."""
        self._best, self._since_best = state["best"], state["since_best"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handlers": {}, "_taken": Counter()}  # of this process

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._taken[number] += 1
        if self._taken[number] > HEEDED[number]:
            signal.signal(number, signal.SIG_DFL)  # an exception would wait for the disk, too, on its way out
            signal.raise_signal(number)
        elif number == signal.SIGTERM:
            self._end(Ending("it was told to terminate (SIGTERM)", status=TERMINATED, at_once=True))
        elif self.ending is None:
            self._end(Ending("interrupted (Ctrl-C)", status=CTRL_C))
        else:
            self._end(self.ending._replace(at_once=True))

    def _end(self, ending: Ending) -> None:
        """End the sweep; a reason that is there already stays, unless the new one cannot wait."""
        if self.ending is None or ending.at_once:
            self.ending = ending
            self._let_propose(0)

    def _let_propose(self, at_a_time: int) -> None:
        if self._searcher is not None:
            self._searcher.set_max_concurrency(at_a_time)

    def _interrupt(self) -> None:
        """Have Tune write its state and end, with trials that a resumed sweep goes on with."""
        self._interrupted = True
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGUSR1)  # which Tune takes besides SIGINT
        else:  # there it takes none, and this one would end the process
            logger.error("the sweep should end, and cannot in a thread, so it goes on: %s", self.ending)
            self.ending = None
            self._let_propose(self._at_a_time)


def kind_of_error(reason: str | None) -> str:
    """Return the last line of an error without what differs from trial to trial: paths, UUIDs, numbers, addresses.

    Returns:
        "" for one that is of no kind, since it comes of the trial's own configuration: the device's memory was full.
    """
    last_line = "".join((reason or "").strip().splitlines()[-1:])
    return "" if OUT_OF_MEMORY in last_line else DIFFERS.sub("#", last_line)
