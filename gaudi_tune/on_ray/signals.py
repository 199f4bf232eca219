"""Handlers of Ctrl-C, SIGTERM, SIGHUP and SIGUSR1, and the signal that stops Tune."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Sequence
from types import FrameType
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.sweep.record.events import CTRL_C, HUNG_UP, PREEMPTED, TERMINATED, Ending

STATUSES: dict[int, int] = {signal.SIGTERM: TERMINATED, signal.SIGHUP: HUNG_UP, signal.SIGUSR1: PREEMPTED}
"""The signals after which this process will be gone in seconds, and its exit status after each."""
INTERRUPTED = Ending("interrupted (Ctrl-C)", status=CTRL_C)
MAX_REQUESTS: dict[int, int] = {signal.SIGINT: 2, **dict.fromkeys(STATUSES, 1)}
"""How often each signal asks the sweep to end; one more ends the process."""


class Signals:
    """Ends a sweep on SIGINT, SIGTERM, SIGHUP and SIGUSR1, so that it can be resumed.

    After SIGINT each running trial writes a checkpoint at its next report. A second SIGINT ends the sweep without
    waiting for that. After SIGTERM, whose sender kills the process seconds later, after SIGHUP, because the terminal is
    gone, and after SIGUSR1, which Slurm sends before the limit of a job, trials save after their next step, within
    ``--notice``. With ``nohup``, which ignores SIGHUP, the sweep goes on. A third SIGINT or a second of the others ends
    the process even if Tune's event loop is blocked, for example by a full disk.
    """

    def __init__(self) -> None:
        self.ending: Ending | None = None
        """The end that a signal asks for; the sweep checks it at each step of Tune's event loop."""
        self._handlers: dict[int, Any] = {}
        self._received: Counter[int] = Counter()

    def take_over(self, limits: Sequence[str] = ()) -> None:
        """Handle the signals from now on.

        In a thread nothing can end Tune early, which is a SweepError if one of the options ``limits`` may need it.
        """
        if self.can_interrupt:
            self._handlers = {
                number: signal.signal(number, self._receive)
                for number in MAX_REQUESTS
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
            }
        elif limits:
            raise SweepError(
                f"{', '.join(limits)}: with these options Tuner.fit() must run in the main thread; call it there, or "
                f"leave them out"
            )

    def give_back(self, *, interrupted: bool) -> None:
        """Restore the earlier handlers. If Tune was interrupted, it has restored the handler of SIGINT itself.

        Later calls do nothing.
        """
        handlers, self._handlers = self._handlers, {}
        for number, handler in handlers.items():
            if number != signal.SIGINT or not interrupted:
                signal.signal(number, handler)

    @property
    def can_interrupt(self) -> bool:
        """Whether Tune takes signals: call this in Tune's thread."""
        return threading.current_thread() is threading.main_thread()

    def interrupt_tune(self) -> bool:
        """Have Tune write its state and end. Return False if Tune takes no signals."""
        if self.can_interrupt:
            tunes_handler: Any = self._handlers.get(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
            tunes_handler(signal.SIGUSR1, None)  # Tune handles it like SIGINT
        return self.can_interrupt

    def _receive(self, number: int, frame: FrameType | None) -> None:
        # Only note the signal, because it may interrupt the handling of an event.
        self._received[number] += 1
        if self._received[number] > MAX_REQUESTS[number]:
            signal.signal(number, signal.SIG_DFL)  # an exception would wait for the full disk, too
            signal.raise_signal(number)
        elif number in STATUSES:
            self.ending = Ending(f"it received {signal.Signals(number).name}", status=STATUSES[number], at_once=True)
        elif self.ending is None:
            self.ending = INTERRUPTED
        else:
            self.ending = self.ending._replace(at_once=True)
