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
    """Has a copy of the fork server deliver an outbox, which ends together with this process.

    Where there is no fork server, a thread of this process does it. If the copy ends too early, or does not start, the
    thread delivers the rest at the end.
    """

    def __init__(self, tracking_uri: str, outbox: Outbox) -> None:
        self._uri, self._outbox = tracking_uri, outbox
        self._control: socket.socket | None = None
        self._thread = Sender(tracking_uri, outbox)
        self.problem = ""
        """What MLflow never gets, as :attr:`Sender.problem`."""

    @property
    def ids(self) -> Mapping[str, str]:
        """The ids in MLflow, as :attr:`Outbox.ids`."""
        if SWEEP not in self._outbox.ids and not self._thread.is_alive():
            self._outbox.load()
        return self._outbox.ids

    def start(self) -> None:
        """Request the copy, or begin to deliver here."""
        arguments = [__file__, self._uri, str(self._outbox.folder), str(int(self._outbox.reopened))]
        if (server := ForkServer.running) is None:
            self._thread.start()
            return
        self._control, other_end = socket.socketpair()
        with other_end, suppress(OSError):
            # What it prints goes to the error output: with --json the output is the result alone.
            server.request(arguments, [other_end.fileno(), 2, 2])

    def close(self) -> None:
        """Deliver what is left, as :meth:`Sender.close` does."""
        if self._control is not None:
            answer = b""  # as it is if the copy has ended
            with self._control, suppress(OSError):
                self._control.sendall(CLOSE)
                while part := self._control.recv(4096):
                    answer += part
            self._outbox.load()
            if answer:
                self.problem = answer.removeprefix(ANSWER).decode()
                return
            self._outbox.reopened = True  # the copy may have made runs without noting them
            self._thread.start()
        self._thread.close()
        self.problem = self._thread.problem

    def is_alive(self) -> bool:
        """Whether this process still delivers: it has given up, and one delivery has not ended."""
        return self._thread.is_alive()


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
