"""The mailbox of a worker: its trial actor puts a command in, and takes the report that answers it.

A worker group starts with this module, before its device is prepared, so it imports no torch.
"""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from gaudi_tune.private.ray_train import RayTrainWorker


class Mailbox:
    """Between the thread of a worker in which trials run, and its trial actor: each waits for the other."""

    def __init__(self) -> None:
        """Wait for the first report, which no command asks for."""
        self._report: Future[dict[str, Any]] = Future()
        self._commands: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def hand_in(self, report: dict[str, Any]) -> dict[str, Any]:
        """Hand in a report, and wait for the command that answers it."""
        self._report.set_result(report)
        return self._commands.get()

    def fail(self, error: str) -> None:
        """Hand in an error, which nothing answers."""
        self._report.set_result({"kind": "error", "error": error})

    def put(self, command: dict[str, Any]) -> None:
        """Put a command in, for the trial that waits or will wait."""
        self._report = Future()
        self._commands.put(command)

    def let_go(self) -> None:
        """Answer who waits for a report: a process that is asked to end waits until no method of its actor runs."""
        waited, self._report = self._report, Future()
        if not waited.done():
            waited.set_result({"kind": "ending"})

    async def report(self) -> dict[str, Any]:
        """Return the report that answers the last command, or the first one, once it is handed in."""
        return await asyncio.wrap_future(self._report)


MAILBOX = Mailbox()
"""That of this process, if it is a worker."""


class WarmWorker(RayTrainWorker):
    """A worker of Ray Train with a mailbox. Its methods run beside the train loop, which has a thread to itself."""

    def __init__(self) -> None:
        """Wait to be set up, which is mostly imports: no garbage is looked for until :func:`serve_trials` has them."""
        super().__init__()
        gc.disable()

    async def report(self) -> dict[str, Any]:
        """Return the first report of the worker, once it is ready."""
        return await MAILBOX.report()

    async def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Give the worker a command, and return the report that answers it."""
        MAILBOX.put(command)
        return await MAILBOX.report()

    async def end(self) -> None:
        """Have the worker's train loop return when it waits for a command."""
        MAILBOX.put({"do": "exit"})
