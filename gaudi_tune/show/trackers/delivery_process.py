"""The process that delivers a sweep's outbox to MLflow while the sweep runs, so that Tune's event loop does not share
Python's lock with it.

It is a copy of the fork server, which has imported what makes the best trial's model. This file is also its script.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gaudi_tune.private.fork_server import ForkServer
from gaudi_tune.show.trackers.delivery import Sender
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.show.trackers.records import SWEEP

CLOSE, ANSWER = b"c", b"a"
"""What the sweep's process says at the end, and what the other's answer begins with once it has delivered or given up.
:attr:`Sender.problem` follows."""


class DeliveryProcess:
    """Delivers an outbox as :class:`Sender` does, but in a process. It ends together with this one.

    If the process ends too early, or does not start, a thread of this process delivers the rest at the end.
    """

    def __init__(self, tracking_uri: str, outbox: Outbox) -> None:
        self._uri, self._outbox = tracking_uri, outbox
        self._control: socket.socket | None = None
        self._fallback: Sender | None = None
        self.problem = ""
        """What MLflow never gets, as :attr:`Sender.problem`."""

    @property
    def ids(self) -> Mapping[str, str]:
        """The ids in MLflow, as :attr:`Outbox.ids`."""
        if SWEEP not in self._outbox.ids:
            self._outbox.load()
        return self._outbox.ids

    def start(self) -> None:
        """Request the process."""
        arguments = [__file__, self._uri, str(self._outbox.folder), str(int(self._outbox.reopened))]
        server = ForkServer.running
        assert server is not None, "the tracker has looked"
        self._control, other_end = socket.socketpair()
        with other_end, suppress(OSError):
            # What it prints goes to the error output: with --json the output is the result alone.
            server.request(arguments, [other_end.fileno(), 2, 2])

    def close(self) -> None:
        """Deliver what is left, as :meth:`Sender.close` does."""
        assert self._control is not None, "it was started"
        answer = b""  # as it is if the process has ended
        with self._control, suppress(OSError):
            self._control.sendall(CLOSE)
            while part := self._control.recv(4096):
                answer += part
        self._outbox.load()
        self.problem = answer.removeprefix(ANSWER).decode()
        if not answer:
            self._outbox.reopened = True  # the process may have made runs without noting them
            self._fallback = Sender(self._uri, self._outbox)
            self._fallback.start()
            self._fallback.close()
            self.problem = self._fallback.problem

    def is_alive(self) -> bool:
        """Whether this process still delivers: it has given up, and one delivery has not ended."""
        return self._fallback is not None and self._fallback.is_alive()


def main(tracking_uri: str, folder: str, reopened: str) -> None:
    """Deliver the outbox in a folder until the sweep's process, whose socket is the standard input, says to close."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the sweep's process, which says what follows
    os.nice(10)  # what trains comes first
    warnings.simplefilter("ignore")  # of libraries that load the model: they would stand beside the sweep's result
    control = socket.socket(fileno=os.dup(0))
    sender = Sender(tracking_uri, Outbox(Path(folder), reopened=bool(int(reopened))))
    sender.start()
    if control.recv(1) != CLOSE:
        os._exit(1)  # the sweep's process was killed; the next one that runs the sweep delivers the rest
    threading.Thread(target=_end_with, args=(control,), daemon=True).start()
    sender.close()
    control.sendall(ANSWER + sender.problem.encode(errors="replace"))
    os._exit(0)  # a delivery that has not ended would hold this process back


def _end_with(control: socket.socket) -> None:
    """End this process when the sweep's process ends."""
    control.recv(1)
    os._exit(1)


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))  # its modules have the names of others
    main(*sys.argv[1:])
