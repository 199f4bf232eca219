"""The mailbox between a trial actor and its workers. Every worker group has a process for it, to which this module is
sent whole: it imports nothing of this project."""

from __future__ import annotations

import asyncio
from typing import Any


class _Turn:
    """One exchange: the reports of all ranks, and the command that answers them."""

    def __init__(self) -> None:
        self.reports: dict[int, dict[str, Any]] = {}
        self.error: dict[str, Any] | None = None
        self.all_in = asyncio.Event()
        self.command: dict[str, Any] = {}
        self.command_given = asyncio.Event()


class Mailbox:
    """Takes a report from each worker and answers all with the same command; each side waits for the other."""

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._turn = _Turn()

    async def report(self, rank: int, report: dict[str, Any]) -> dict[str, Any]:
        """Hand in a worker's report, and return the command that answers it."""
        turn = self._turn
        turn.reports[rank] = report
        if len(turn.reports) == self._num_workers:
            turn.all_in.set()
        await turn.command_given.wait()
        return turn.command

    async def fail(self, rank: int, error: str) -> None:
        """Hand in an error. It ends the turn: other ranks may wait for this one in a collective, and never report."""
        if self._turn.error is None:  # the first is the cause of the others
            self._turn.error = {"kind": "error", "rank": rank, "error": error}
        self._turn.all_in.set()

    async def reports(self) -> list[dict[str, Any]]:
        """Return the reports of all ranks, by rank, once they are in; or the first error alone."""
        turn = self._turn
        await turn.all_in.wait()
        if turn.error is not None:
            return [turn.error]
        return [report for _, report in sorted(turn.reports.items())]

    async def command(self, command: dict[str, Any]) -> list[dict[str, Any]]:
        """Send every worker the command, and return the reports that answer it."""
        turn = self._turn
        await turn.all_in.wait()
        self._turn = _Turn()
        turn.command = command
        turn.command_given.set()
        return await self.reports()
