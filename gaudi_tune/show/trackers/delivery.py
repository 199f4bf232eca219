"""The thread that brings a sweep's outbox to MLflow, and the same afterwards, by command."""

from __future__ import annotations

import itertools
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT
from mlflow.tracking import MlflowClient

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.variables import temporary_environment
from gaudi_tune.private.mlflow import DATABASE_LOGGER
from gaudi_tune.show.trackers.mlflow_runs import MlflowRuns
from gaudi_tune.show.trackers.outbox import RECORDS_FILE, Outbox, tracked_at
from gaudi_tune.show.trackers.records import SWEEP, BeginRun, Record, Update
from gaudi_tune.sweep.record.lock import is_running

logger = logging.getLogger(__name__)

SEND_EVERY_S = 1.0
"""What was reported in this time travels together."""
LOOK_EVERY_S = 0.5
"""How often the end of a sweep looks whether everything is delivered."""
GIVE_UP_AFTER_S = 60
"""How long the end of a sweep waits for a tracking server that takes nothing; what is left waits on disk."""
WARN_EVERY = 60
"""After how many tries in vain to say so again."""

OF_MLFLOW = {
    MLFLOW_HTTP_REQUEST_MAX_RETRIES.name: "1",  # the sender tries again
    MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT.name: "true",  # two lines for each trial
}
"""Settings of MLflow in this process while something is delivered, unless the user has set them."""


class _GivenUpError(Exception):
    """The server has taken nothing for too long after the end of the sweep."""


class Sender(threading.Thread):
    """Delivers the records of an outbox in order, each run's metrics together, for as long as that takes."""

    def __init__(self, tracking_uri: str, outbox: Outbox) -> None:
        super().__init__(name="mlflow", daemon=True)
        self._uri, self._outbox = tracking_uri, outbox
        self._runs: MlflowRuns | None = None
        self._closed, self._given_up = threading.Event(), threading.Event()
        self._fails_since: float | None = None  # of the monotonic clock

    def close(self) -> None:
        """Deliver what is left, until the server has taken nothing for :data:`GIVE_UP_AFTER_S`.

        A model that takes longer is waited for.
        """
        self._closed.set()
        while self.is_alive() and time.monotonic() - (self._fails_since or math.inf) < GIVE_UP_AFTER_S:
            self.join(LOOK_EVERY_S)
        self._given_up.set()

    def run(self) -> None:
        """Deliver until closed."""
        logging.getLogger(DATABASE_LOGGER).setLevel(logging.WARNING)  # a line for each table that it makes
        with temporary_environment(OF_MLFLOW), self._outbox.held(), suppress(_GivenUpError):
            more = True
            while more:
                more = not self._closed.wait(SEND_EVERY_S)
                while (records := self._outbox.read()) is not None:
                    self._until_done(self._outbox.keep)
                    for group in _batched(records):
                        if not self._until_done(partial(self._deliver, group)) and len(group) > 1:
                            for record in group:  # a record that MLflow refuses is not to spoil the others
                                self._until_done(partial(self._deliver, [record]))
                    self._until_done(self._outbox.delivered)

    def _deliver(self, group: list[Record]) -> None:
        if self._runs is None:
            self._fails_since = self._fails_since or time.monotonic()  # MLflow tries to open a database for minutes
            try:
                self._runs = MlflowRuns(MlflowClient(self._uri), self._outbox)
            except Exception as error:  # each kind of store has its own
                raise ConnectionError(f"{self._uri} cannot be opened: {error}") from error
            self._fails_since = None
        self._runs.deliver(group)

    def _until_done(self, send: Callable[[], None]) -> bool:
        """Send, again and again while the server is away; what it refuses is reported and left. Return whether it was
        taken."""
        for attempt in itertools.count(1):
            try:
                send()
            except Exception as error:
                until = self._runs.why_try_again(error, attempt) if self._runs is not None else ""
                if until is None:
                    self._fails_since = None
                    logger.error("MLflow refused a record, which stays in %s", self._outbox.folder, exc_info=error)
                    return False
                if attempt % WARN_EVERY == 1:
                    first_line = str(error).split("\n", maxsplit=1)[0]
                    logger.warning("MLflow does not take it (%s); trying again%s", first_line, until)
            else:
                self._fails_since = None
                return True
            self._fails_since = self._fails_since or time.monotonic()
            if self._given_up.wait(SEND_EVERY_S):
                raise _GivenUpError
        raise AssertionError("it tries for ever")


def deliver_left(folder: Path, tracking_uri: str) -> int:
    """Deliver what the outbox of a sweep that does not run still holds, and return how many bytes that was.

    A SweepError says why it cannot be delivered, or that MLflow does not take everything.
    """
    if not (folder / RECORDS_FILE).is_file():
        raise SweepError(f"{folder}: there is no {RECORDS_FILE} here; give the folder of a sweep")
    # A record says which files to send, and which function makes a model of them.
    if any(path.stat().st_uid != os.geteuid() for path in (folder, folder / RECORDS_FILE)):
        raise SweepError(f"{folder}: this sweep is another user's, who can deliver it")
    if is_running(folder):
        raise SweepError(f"{folder}: this sweep is running, and delivers by itself")
    if (tracked := tracked_at(folder)) != tracking_uri:
        where = (
            f"is tracked at {tracked}; give that as --tracking-uri"
            if tracked
            else f"has a damaged outbox ({RECORDS_FILE}); put it back from a backup"
        )
        raise SweepError(f"{folder}: this sweep {where}")
    outbox = Outbox(folder)
    size = outbox.waiting
    sender = Sender(tracking_uri, outbox)
    sender.start()
    sender.close()
    if outbox.waiting:
        raise SweepError(
            f"{folder}: MLflow at {tracking_uri} accepted nothing for {GIVE_UP_AFTER_S} s (the reason is above); "
            f"the rest stays there"
        )
    outbox.close()
    return size


def _batched(records: list[Record]) -> list[list[Record]]:
    """Group what can travel together: of each run its begin, its updates and its end, in their order.

    The sweep's own end waits for all that comes before it.
    """
    groups: list[list[Record]] = []
    open_groups: dict[str, list[Record]] = {}
    for record in records:
        group = open_groups.pop(record.run, None)
        goes_on = isinstance(record, Update) and record.status is None
        ends = isinstance(record, Update) and record.status not in (None, "RUNNING") and record.run != SWEEP
        if group is None or not (goes_on or ends):
            groups.append(group := [])
        group.append(record)
        if goes_on or type(record) is BeginRun:
            open_groups[record.run] = group
    return groups
