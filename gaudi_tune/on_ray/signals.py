"""Ctrl-C and SIGTERM, and how to stop Tune."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Sequence
from types import FrameType
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.sweep.record.events import CTRL_C, TERMINATED, Ending

ASKS: dict[int, int] = {signal.SIGINT: 2, signal.SIGTERM: 1}
"""How often a signal asks for an end of the sweep; once more ends the process."""


class Signals:
    """Ends a sweep on SIGINT and SIGTERM, so that it can be resumed.

    Running trials first write a checkpoint at their next report. A second SIGINT ends the sweep without waiting for
    that, and so does SIGTERM, after which a process has seconds to live. A third SIGINT or a second SIGTERM ends the
    process, even if Tune's event loop stands still, as it does while a disk is full.
    """

    def __init__(self) -> None:
        self.asked: Ending | None = None
        """The end that a signal asks for; the sweep looks at it at every turn of Tune's event loop."""
        self._handlers: dict[int, Any] = {}
        self._received: Counter[int] = Counter()

    def take_over(self, limits: Sequence[str] = ()) -> None:
        """Handle the signals from here on.

        In a thread nothing can end Tune early: a SweepError, if one of these options may want to.
        """
        if self.can_interrupt:
            self._handlers = {number: signal.signal(number, self._receive) for number in ASKS}
        elif limits:
            raise SweepError(
                f"{', '.join(limits)}: with these options Tuner.fit() must run in the main thread; call it there, or "
                f"leave them out"
            )

    def give_back(self, *, interrupted: bool) -> None:
        """Restore the handlers that were there; Tune itself restores that of SIGINT when it was interrupted.

        Only the first call does.
        """
        handlers, self._handlers = self._handlers, {}
        for number, handler in handlers.items():
            if number != signal.SIGINT or not interrupted:
                signal.signal(number, handler)

    @property
    def can_interrupt(self) -> bool:
        """Whether Tune, in whose thread this is asked, takes signals."""
        return threading.current_thread() is threading.main_thread()

    def interrupt_tune(self) -> bool:
        """Have Tune write its state and end; False where it takes no signal."""
        if self.can_interrupt:
            signal.raise_signal(signal.SIGUSR1)  # which Tune takes besides SIGINT
        return self.can_interrupt

    def _receive(self, number: int, frame: FrameType | None) -> None:
        # Only take note: the signal may have come in the middle of an event.
        self._received[number] += 1
        if self._received[number] > ASKS[number]:
            signal.signal(number, signal.SIG_DFL)  # an exception would wait for the disk, too, on its way out
            signal.raise_signal(number)
        elif number == signal.SIGTERM:
            self.asked = Ending("it received SIGTERM", status=TERMINATED, at_once=True)
        elif self.asked is None:
            self.asked = Ending("interrupted (Ctrl-C)", status=CTRL_C)
        else:
            self.asked = self.asked._replace(at_once=True)
