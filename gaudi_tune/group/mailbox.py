"""The mailbox of a worker: its trial actor puts in a command, and takes out the report that answers it.

A worker imports this module before it prepares its device, so it imports no torch.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from gaudi_tune.base.failure import Failure
from gaudi_tune.training.end_notice import NOTICE_FILE


class Mailbox:
    """Connects the thread in which a worker runs trials with the trial actor: each of the two waits for the other."""

    def __init__(self) -> None:
        """Expect the first report, which answers no command."""
        self.started_in: Path | None = None
        """The folder in which this process began, before Ray Train chose another."""
        self._report: Future[dict[str, Any]] = Future()
        self._commands: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._request: Future[dict[str, Any]] | None = None

    def introduction(self) -> dict[str, Any]:
        """Return what the first report has besides, if the trial actor does not know this worker yet."""
        return {}

    def hand_in(self, report: dict[str, Any]) -> dict[str, Any]:
        """Hand in a report, and wait for the command that answers it."""
        self._report.set_result(report)
        return self._commands.get()

    def fail(self, failure: Failure) -> None:
        """Hand in why the trial failed. No command follows it."""
        self._report.set_result({"kind": "error", "failure": failure.plain()})

    def put(self, command: dict[str, Any]) -> None:
        """Put in a command for the trial, which waits for one or soon will."""
        self._report = Future()
        self._commands.put(command)

    def wants_save(self) -> bool:
        """Whether the trial actor, on another node, wants the trial to save between two reports."""
        return self._request is not None

    def hand_over(self, saved: dict[str, Any]) -> None:
        """Hand over what the trial has saved between two reports; {} if it does not save."""
        request, self._request = self._request, None
        if request is not None:
            request.set_result(saved)

    async def saved_now(self) -> dict[str, Any]:
        """Have the trial save after its next step, and return what it then hands over."""
        self.hand_over({})  # to who asked before
        request: Future[dict[str, Any]] = Future()
        self._request = request
        return await asyncio.wrap_future(request)

    def release_waiter(self) -> None:
        """Answer the method that waits for a report, if any: Ray ends a process only when its actor runs no method."""
        self.hand_over({})
        expected, self._report = self._report, Future()
        if not expected.done():
            expected.set_result({"kind": "ending"})

    async def report(self) -> dict[str, Any]:
        """Return the report that answers the last command, or the first one, once it is handed in."""
        return await asyncio.wrap_future(self._report)


MAILBOX = Mailbox()
"""The mailbox of this process, if it is a worker."""


class Answering:
    """The methods of an actor by which the trial actor reaches a mailbox."""

    mailbox: Mailbox

    async def report(self) -> dict[str, Any]:
        """Return the first report of the worker, once it is ready."""
        return await self.mailbox.report()

    async def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Give the worker a command, and return the report that answers it."""
        self.mailbox.put(command)
        return await self.mailbox.report()

    async def save_now(self, sweep: str) -> dict[str, Any] | None:
        """Return what the trial saves after its next step; {} if it does not, and None if this node sees the notice in
        the sweep's folder."""
        return None if os.path.exists(Path(sweep, NOTICE_FILE)) else await self.mailbox.saved_now()

    async def end(self) -> None:
        """Have the worker's train loop return when it waits for a command."""
        self.mailbox.put({"do": "exit"})


class MailboxActor(Answering):
    """A mailbox in a separate process."""

    def __init__(self) -> None:
        self.mailbox = Mailbox()

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the mailbox for the worker, which may have to wait."""
        return await asyncio.to_thread(getattr(self.mailbox, method), *arguments)
