"""The early end of a sweep, once its trials have saved: a rule, a person, a signal or a failed search asks for it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable

from gaudi_tune.base.errors import SweepError, place_of, users_error
from gaudi_tune.define.given_objects import GivenObjects
from gaudi_tune.on_ray.signals import Signals
from gaudi_tune.sweep.record.events import Ending, EndingWithdrawn, Event, SweepEnding
from gaudi_tune.sweep.record.sweep_state import SweepState

logger = logging.getLogger(__name__)


class EarlyEnd:
    """Lets every running trial write a checkpoint and then interrupts Tune.

    From the moment it is asked, the record has a reason to end (``state.ending``), and nothing new is proposed.
    """

    def __init__(self, state: SweepState, objects: GivenObjects, tell: Callable[[Event], None]) -> None:
        """Prepare only. ``objects`` are what the user gave for the search, among others."""
        self._state, self._objects, self._tell = state, objects, tell
        self.signals = Signals()
        self.interrupted = False
        """Whether Tune was interrupted."""
        self.search_error: SweepError | None = None
        """The error of what the user gave for the search, which the sweep raises at its end; None if there was none."""
        self._request_time = math.inf  # monotonic time

    def ask(self, ending: Ending | None) -> None:
        """End the sweep soon if there is a reason. The first reason stays, unless a later one cannot wait."""
        current = self._state.ending
        if ending is None:
            return
        if current is None:
            self._request_time = time.monotonic()
            self._tell(SweepEnding(ending=ending))
        elif ending.at_once:
            # A limit that the user set (status 0) makes the end immediate, but is not why the sweep ends.
            combined = current._replace(at_once=True) if ending.status == 0 else ending
            if combined != current:
                self._tell(SweepEnding(ending=combined))

    def take_search_error(self, error: BaseException) -> None:
        """End the sweep in good order for an error of the user's sampler, searcher or space; raise any other."""
        word = "sampler" if self._objects.search_alg is None else "search_alg"
        item = getattr(self._objects, word)
        if item is None and not place_of(error):
            raise error
        name = "the function of the search space" if item is None else f"{word}={type(item).__name__}"
        why = f"{name} failed: {users_error(error)}; correct it and resume the sweep, which has lost nothing"
        self.search_error = SweepError(why)
        self.search_error.__cause__ = error
        self.ask(Ending(why, status=1))

    def check_signals(self) -> None:
        """End the sweep if a signal asks for it, and at once if the sweep is ending already.

        Call this at the end of a step of Tune's event loop. An ending sweep proposes nothing, and while no trial runs,
        Tune would wait ten minutes for a proposal in the rest of the step.
        """
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

    def interrupt_when_saved(self, training: Iterable[int]) -> None:
        """Interrupt Tune if the sweep ends and each of the ``training`` trials has saved, or the end cannot wait."""
        if self._state.ending is None or self.interrupted:
            return
        if not self._state.ending.at_once and not all(map(self._has_saved, training)):
            return
        self.interrupted = self.signals.interrupt_tune()
        if not self.interrupted:  # Tune runs in a thread
            logger.error(
                "the sweep should end, but nothing can end it in a thread; it continues: %s", self._state.ending.why
            )
            self.signals.ending = None
            self._tell(EndingWithdrawn())

    def _has_saved(self, number: int) -> bool:
        """Whether a trial has written a checkpoint since the end was asked for, or has nothing to save."""
        trial = self._state.trials[number]
        return trial.safe_since >= self._request_time or (bool(trial.metrics) and trial.to_save is None)
