"""The delivery of a sweep's outbox to MLflow, by a thread.

Functions import MLflow, which takes a second: the thread does it, not Tune's event loop.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from filelock import FileLock
from typing_extensions import override

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.process import temporary_environment
from gaudi_tune.show.trackers.outbox import GIVE_UP_AFTER_S, Outbox
from gaudi_tune.show.trackers.records import SWEEP, BeginRun, Record, Update
from gaudi_tune.show.trackers.store import database_file

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

    from gaudi_tune.show.trackers.mlflow_runs import MlflowRuns

logger = logging.getLogger(__name__)

SEND_EVERY_S = 1.0
"""Seconds between two deliveries: all that was reported meanwhile is sent together."""
REST = 2.0
"""How many times as long as a delivery computes it rests, so that trials that take no time do not wait for it. The end
of a sweep leaves no rest."""
LOOK_EVERY_S = 0.5
"""Seconds between two looks of the end of a sweep whether everything is delivered."""
WARN_EVERY = 60
"""The number of failed attempts between two warnings."""

LOCAL_DISKS = {"btrfs", "ext3", "ext4", "overlay", "tmpfs", "xfs", "zfs"}
"""File systems of disks that only one machine has."""
MLFLOW_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # the sender tries again
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # it would print two lines for each trial
}
"""Settings of MLflow in this process while something is delivered, unless the user has set them."""


class _GivenUpError(Exception):
    """The server has accepted nothing for too long after the end of the sweep."""


def _open(uri: str) -> MlflowClient:
    """Open a tracking store. A new database in a file gets its name when MLflow has made it, under another: MLflow does
    not go on with tables that a killed process has made by half."""
    from mlflow.tracking import MlflowClient

    file = database_file(uri)
    if file is None:
        return MlflowClient(uri)
    with FileLock(f"{file}.lock"):  # two processes that make its tables at once get in each other's way
        if not file.exists():
            for unfinished in file.parent.glob(f"{file.name}.*.partial"):
                unfinished.unlink()
            ending = f".{uuid.uuid4().hex}.partial"  # never the same: MLflow keeps what it has opened
            address, question, query = uri.partition("?")
            MlflowClient(f"{address}{ending}{question}{query}")
            Path(f"{file}{ending}").rename(file)
            if _is_on_local_disk(file):
                # MLflow commits about five times for a trial. With this journal a commit waits for the disk once, not
                # three times. It stays in the file, and does not work over a network.
                with closing(sqlite3.connect(file)) as database:
                    database.execute("PRAGMA journal_mode = WAL")
        return MlflowClient(uri)


def _is_on_local_disk(file: Path) -> bool:
    """Whether only this machine has the disk of a file."""
    places = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    return next((places[folder] for folder in file.resolve().parents if folder in places), "") in LOCAL_DISKS


class Sender(threading.Thread):
    """Delivers the records of an outbox in order, each run's metrics together, for as long as that takes."""

    def __init__(self, tracking_uri: str, outbox: Outbox) -> None:
        super().__init__(name="mlflow", daemon=True)
        self._uri, self._outbox = tracking_uri, outbox
        self._runs: MlflowRuns | None = None
        self._closed, self._gives_up = threading.Event(), threading.Event()
        self._fails_since: float | None = None  # monotonic time
        self.problem = ""
        """What MLflow never gets, because the user's own code failed, in words; "" if nothing."""

    def close(self) -> None:
        """Deliver what is left, until the server has accepted nothing for :data:`GIVE_UP_AFTER_S`.

        One long delivery, such as that of a large model, may take longer.
        """
        self._closed.set()
        while self.is_alive() and time.monotonic() - (self._fails_since or math.inf) < GIVE_UP_AFTER_S:
            self.join(LOOK_EVERY_S)
        self._gives_up.set()

    @override
    def run(self) -> None:
        """Deliver until closed."""
        from gaudi_tune.private.mlflow import DATABASE_LOGGER

        logging.getLogger(DATABASE_LOGGER).setLevel(logging.WARNING)  # it would print a line for each table
        with temporary_environment(MLFLOW_SETTINGS), self._outbox.exclusive(), suppress(_GivenUpError):
            is_open = True
            while is_open:
                is_open = not self._closed.wait(SEND_EVERY_S)
                while (records := self._outbox.read_batch()) is not None:
                    self._deliver_all(records)

    def _deliver_all(self, records: list[Record]) -> None:
        self._retry(self._outbox.flush_to_disk)
        for group in _groups(records):
            started_at = time.thread_time()
            accepted = self._retry(partial(self._deliver, group))
            if not accepted and len(group) > 1:  # MLflow may refuse only one of them
                for record in group:
                    self._retry(partial(self._deliver, [record]))
            self._closed.wait(REST * (time.thread_time() - started_at))
        self._retry(self._outbox.mark_delivered)

    def _deliver(self, group: list[Record]) -> None:
        if self._runs is None:
            from gaudi_tune.show.trackers.mlflow_runs import MlflowRuns

            self._fails_since = self._fails_since or time.monotonic()  # opening a database may take minutes
            try:
                self._runs = MlflowRuns(_open(self._uri), self._outbox)
            except Exception as error:  # each kind of store raises its own
                raise ConnectionError(f"{self._uri} cannot be opened: {error}") from error
            self._fails_since = None
        self._runs.deliver(group)

    def _retry(self, send: Callable[[], None]) -> bool:
        """Call ``send`` until the server answers. Return False, after an error in the log, if the server refuses it."""
        attempt = 0
        while True:
            attempt += 1
            try:
                send()
            except Exception as error:  # each kind of store raises its own
                condition = self._runs.retry_until(error, attempt) if self._runs is not None else ""
                if isinstance(error, SweepError):
                    self._fails_since, self.problem = None, str(error)
                    logger.error("%s", error)
                    return False
                if condition is None:
                    self._fails_since = None
                    logger.error("MLflow refused a record, which stays in %s", self._outbox.folder, exc_info=error)
                    return False
                if attempt % WARN_EVERY == 1:
                    first_line = str(error).split("\n", maxsplit=1)[0]
                    logger.warning("MLflow does not take it (%s); trying again%s", first_line, condition)
            else:
                self._fails_since = None
                return True
            self._fails_since = self._fails_since or time.monotonic()
            if self._gives_up.wait(SEND_EVERY_S):
                raise _GivenUpError


def _groups(records: list[Record]) -> list[list[Record]]:
    """Group records that can be sent together: the beginning of a run, its updates and its end, in their order.

    The end of the sweep's own run is a group by itself, after all earlier records.
    """
    groups: list[list[Record]] = []
    open_groups: dict[str, list[Record]] = {}
    for record in records:
        group = open_groups.pop(record.run, None)
        continues = isinstance(record, Update) and record.status is None
        ends = isinstance(record, Update) and record.status not in (None, "RUNNING") and record.run != SWEEP
        if group is None or not (continues or ends):
            group = []
            groups.append(group)
        group.append(record)
        if continues or type(record) is BeginRun:
            open_groups[record.run] = group
    return groups
