"""How a sweep ends before its last trial has: a rule, a person or a signal asks for it, or Ray is gone."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable

from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.signals import Signals
from gaudi_tune.on_ray.watch import RayWatch
from gaudi_tune.sweep.record.events import TERMINATED, Ending, Event, SweepEnding
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.search.searcher import StudySearcher

logger = logging.getLogger(__name__)


class EarlyEnd:
    """Lets every trial that runs write a checkpoint, and then interrupts Tune; without Ray it ends the process."""

    def __init__(
        self,
        plan: Plan,
        state: SweepState,
        searcher: StudySearcher,
        tell: Callable[[Event], None],
        close: Callable[[], None],
    ) -> None:
        """Prepare; ``close`` writes and shows all that can be written and shown without Ray."""
        self._plan, self._state, self._searcher, self._tell, self._close = plan, state, searcher, tell, close
        self.signals = Signals()
        self.watch = RayWatch(self.signals, self._leave_without_ray)
        self.interrupted = False
        """Whether Tune was interrupted."""
        self._to_save: set[int] | None = None  # running trials whose checkpoint is waited for, once the sweep ends
        self._saved = set[int]()  # trials that had saved, or had nothing to save, before that was known
        self._leaving = threading.Lock()

    def ask(self, ending: Ending | None) -> None:
        """End the sweep soon if there is a reason. One that is there already stays, unless the new one cannot wait."""
        before = self._state.ending
        if ending is not None and before is not None and ending.status == 0:  # that the time is over, too
            ending = before._replace(at_once=ending.at_once or before.at_once)
        if ending is not None and ending != before and (before is None or ending.at_once):
            self._searcher.set_max_concurrency(0)  # what it proposed would fail alike, or be cut short
            self._tell(SweepEnding(ending=ending))

    def heed_sigterm(self) -> None:
        """End the process if SIGTERM asked for it: if Ray got the signal, too, its next call would end it without a
        word."""
        asked = self.signals.asked
        if asked is not None and asked.status == TERMINATED:
            self._leave_without_ray(asked)

    def heed_signals(self) -> None:
        """End the sweep if a signal asked for it; at once, if it was ending already.

        At the end of a step of Tune's: a sweep that ends proposes nothing more, and if no trial runs, Tune would wait
        ten minutes for a proposal in the rest of the step.
        """
        self.heed_sigterm()
        asked, ending = self.signals.asked, self._state.ending
        if asked is None or asked == ending or (ending is not None and ending.at_once):
            return
        self.ask(asked if ending is None or asked.at_once else ending._replace(at_once=True))

    @property
    def holds_trials(self) -> bool:
        """Whether a trial waits after its report: the sweep ends once all have saved, and what this one would train
        until then would be lost."""
        return self._state.ending is not None and self.signals.can_interrupt

    def saved(self, trial: int) -> None:
        """Note that a trial has written a checkpoint, or has none to write."""
        if self._to_save is not None:
            self._to_save.discard(trial)
        elif self._state.ending is not None:
            self._saved.add(trial)

    def interrupt_when_saved(self, training: Iterable[int]) -> None:
        """Once the sweep ends, interrupt Tune when each of the trials that are ``training`` has its checkpoint."""
        if self._state.ending is None or self.interrupted:
            return
        to_come = {*training} - self._saved
        self._to_save = to_come if self._to_save is None else self._to_save & to_come
        if self._to_save and not self._state.ending.at_once:
            return
        self.interrupted = self.signals.interrupt_tune()
        if not self.interrupted:  # in a thread Tune cannot be
            logger.error(
                "the sweep should end, but nothing can end it in a thread; it continues: %s", self._state.ending.why
            )
            self._searcher.set_max_concurrency(self._plan.groups)
            self._state.ending = self.signals.asked = None

    def _leave_without_ray(self, ending: Ending) -> None:
        """Close the sweep and end the process: Tune's event loop waits for a Ray that is gone, or soon will be."""
        self._leaving.acquire()  # for good: a second caller waits for the end of the process
        try:
            self.ask(ending)
            self._close()
            print(f"resume it with: {self._plan.how_to_resume()}", file=sys.stderr, flush=True)
        except Exception:  # the process ends all the same: nobody else would end it
            logger.exception("the sweep could not be closed; it can be resumed from its last snapshot")
        finally:
            os._exit(ending.status)
