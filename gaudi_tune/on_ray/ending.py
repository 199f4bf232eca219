"""The early end of a sweep: a rule, a person or a signal asks for it, or Ray is gone."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.signals import STATUSES, Signals
from gaudi_tune.on_ray.watch import RayWatch
from gaudi_tune.sweep.record.events import Ending, EndingWithdrawn, Event, SweepEnding
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.search.searcher import StudySearcher
from gaudi_tune.training.notice import LOOK_EVERY_S, give_notice, saved_since

logger = logging.getLogger(__name__)


class EarlyEnd:
    """Lets every running trial write a checkpoint and then interrupts Tune. Without Ray it ends the process."""

    def __init__(
        self,
        plan: Plan,
        state: SweepState,
        searcher: StudySearcher,
        tell: Callable[[Event], None],
        close: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Prepare only. ``close`` writes and shows everything that needs no Ray, and returns the summary."""
        self._plan, self._state, self._searcher, self._tell, self._close = plan, state, searcher, tell, close
        self.signals = Signals()
        self.watch = RayWatch(self.signals, self._leave_without_ray, partial(give_notice, plan.folder))
        self.interrupted = False
        """Whether Tune was interrupted."""
        self._unsaved: set[int] | None = None  # running trials that have yet to save; None before they were counted
        self._saved = set[int]()  # trials that saved, or had nothing to save, before the unsaved were counted
        self._leaving = threading.Lock()

    def ask(self, ending: Ending | None) -> None:
        """End the sweep soon if there is a reason. The first reason stays, unless a later one cannot wait."""
        current = self._state.ending
        if ending is None:
            return
        if current is None:
            self._begin_ending(ending)
        elif ending.at_once:
            # A limit that the user set (status 0) makes the end immediate, but is not why the sweep ends.
            combined = current._replace(at_once=True) if ending.status == 0 else ending
            if combined != current:
                self._begin_ending(combined)

    def _begin_ending(self, ending: Ending) -> None:
        self._searcher.set_max_concurrency(0)  # a new trial would fail in the same way, or be cut short
        self._tell(SweepEnding(ending=ending))

    def heed_notice(self) -> None:
        """End the process if it received SIGTERM, SIGHUP or SIGUSR1, once its trials have saved. If Ray received the
        signal, too, the next call of Ray would end the process without a message."""
        requested = self.signals.ending
        if requested is not None and requested.status in STATUSES.values():
            self._let_trials_save()
            self._leave_without_ray(requested)

    def _let_trials_save(self) -> None:
        """Wait until the running trials have saved, as long as the notice is. This calls nothing of Ray."""
        folder, deadline = self._plan.folder, time.monotonic() + (self._plan.options.notice or 0)
        running = {trial.name for trial in self._state.trials.values() if trial.status == "running"}
        if not running or time.monotonic() >= deadline:
            return
        notice_time, unsaved = give_notice(folder), running
        while unsaved and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
            unsaved = {name for name in unsaved if not saved_since(folder / name, notice_time)}
        logger.warning(
            "%d of %d running trials saved after their last step; the others continue from their last checkpoint",
            len(running) - len(unsaved), len(running),
        )  # fmt: skip

    def heed_signals(self) -> None:
        """End the sweep if a signal asks for it, and at once if the sweep is ending already.

        Call this at the end of a step of Tune's event loop. An ending sweep proposes nothing, and while no trial runs,
        Tune would wait ten minutes for a proposal in the rest of the step.
        """
        self.heed_notice()
        requested, current = self.signals.ending, self._state.ending
        if requested is None or requested == current:
            return
        if current is None:
            self.ask(requested)
        elif not current.at_once:
            self.ask(requested if requested.at_once else current._replace(at_once=True))

    @property
    def holds_trials(self) -> bool:
        """Whether a trial waits after its report, because the sweep ends once all have saved: what this trial would
        train until then would be lost."""
        return self._state.ending is not None and self.signals.can_interrupt

    def saved(self, trial: int) -> None:
        """Note that a trial has written a checkpoint, or has nothing to save."""
        if self._unsaved is not None:
            self._unsaved.discard(trial)
        elif self._state.ending is not None:
            self._saved.add(trial)

    def interrupt_when_saved(self, training: Iterable[int]) -> None:
        """Interrupt Tune if the sweep ends and each of the ``training`` trials has saved, or the end cannot wait."""
        if self._state.ending is None or self.interrupted:
            return
        unsaved = {*training} - self._saved
        self._unsaved = unsaved if self._unsaved is None else self._unsaved & unsaved
        if self._unsaved and not self._state.ending.at_once:
            return
        self.interrupted = self.signals.interrupt_tune()
        if not self.interrupted:  # Tune runs in a thread
            logger.error(
                "the sweep should end, but nothing can end it in a thread; it continues: %s", self._state.ending.why
            )
            self._searcher.set_max_concurrency(self._plan.groups)
            self.signals.ending = None
            self._tell(EndingWithdrawn())

    def _leave_without_ray(self, ending: Ending) -> None:
        """Close the sweep and end the process: Tune's event loop would wait for a Ray that is gone or ending."""
        self._leaving.acquire()  # never released: a second caller waits here until the process ends
        try:
            self.ask(ending)
            summary = self._close()
            if self._plan.options.json:  # the command line, which prints it otherwise, has sys.stdout go to stderr
                print(json.dumps(summary, indent=2, default=str), file=sys.__stdout__, flush=True)
            print(f"resume it with: {self._plan.how_to_resume()}", file=sys.stderr, flush=True)
        except Exception:  # nothing else would end the process
            logger.exception("the sweep could not be closed; it can be resumed from its last snapshot")
        finally:
            os._exit(ending.status)
