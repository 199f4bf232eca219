"""Records on their way to MLflow. They are on disk, and survive their process and any absence of the server."""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from gaudi_tune.base import files
from gaudi_tune.base.files import MAX_JSON_BYTES, atomic_write, open_regular_file, read_json, retry_while_disk_is_full
from gaudi_tune.show.trackers.mlflow_names import own_names
from gaudi_tune.show.trackers.records import ORIGIN, OUTBOX, BeginRun, BeginSweep, Record, Update, from_line, to_line
from gaudi_tune.show.trackers.store import artifact_folder

logger = logging.getLogger(__name__)

GIVE_UP_AFTER_S = 60
"""How long the end of a sweep waits for a tracking server that accepts nothing. The rest then stays on disk."""
MAX_BATCH = 2000
"""The most records that are delivered together."""


def is_delivered(folder: Path) -> bool:
    """Whether MLflow has all records of a sweep that is over. Writes nothing."""
    if not (folder / files.OUTBOX_FILE).is_file():
        return True
    try:
        delivered = int(read_json(folder / files.DELIVERED_FILE)["delivered"])
    except (OSError, ValueError, TypeError, LookupError, OverflowError):
        return False
    return delivered >= (folder / files.OUTBOX_FILE).stat().st_size


class Outbox:
    """Keeps records in the order in which they were put, and how many of them were delivered.

    Only the process that runs the sweep (``state.lock``) puts records into it. One process at a time delivers them.
    """

    def __init__(self, folder: Path, *, reopened: bool | None = None) -> None:
        """Open the outbox in the folder of a sweep, which exists.

        Args:
            folder: The folder. No other process runs the sweep, or this process only delivers for that one.
            reopened: The attribute of that process's outbox; None in the process that runs the sweep.
        """
        self.folder = folder
        self._records, self._state = folder / files.OUTBOX_FILE, folder / files.DELIVERED_FILE
        self.ids: dict[str, str] = {}
        """Ids in MLflow of the runs, by their names in records, of the experiment, and of models."""
        self.names: dict[str, str] = {}
        """The metric that each name in MLflow stands for."""
        self.reopened = self._records.is_file() if reopened is None else reopened
        """Whether an earlier process wrote to the outbox, and may have delivered more than it noted."""
        self._file = self._records.open("ab", buffering=0)
        if reopened is None:  # if an earlier process was killed, its last line may not be whole
            self._file.truncate(self._records.read_bytes().rfind(b"\n") + 1)
        self.load()

    def load(self) -> None:
        """Read how many bytes other processes have delivered, and the ids.

        After a crash of the machine that may be unknown, or more than the file has. Records may be delivered a second
        time: runs are looked up before they are made, and of values with the same name, time and step MLflow keeps one.
        """
        delivered, size = 0, self._records.stat().st_size
        try:
            state = json.loads(self._state.read_bytes())
            self.ids, delivered = dict(state["ids"]), int(state["delivered"])
            self.names = dict(state.get("names", {}))
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError):
            logger.warning("%s is torn: all records beside it are delivered again, which doubles nothing", self._state)
        if delivered > size:
            logger.warning(
                "%s: %d bytes of it were delivered, and some of them are lost; going on after the first %d",
                self._records, delivered, size,
            )  # fmt: skip
        self._delivered_bytes = self._read_bytes = min(delivered, size)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let no other process deliver inside the block: wait for one that does, and go on where it stopped."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self.load()
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file of the records."""
        self._file.close()

    def __iter__(self) -> Iterator[Record]:
        """Yield every record, delivered or not."""
        return iter(self._read_records(0)[0])

    def _read_records(self, start: int, max_lines: int | None = None) -> tuple[list[Record], int]:
        """Return the records of the lines from byte ``start`` on, and the byte at which the last of these lines ends.

        A line that a crash of the machine damaged is skipped, and logged as an error. A last line that is not whole yet
        is left for later.
        """
        records, end = [], start
        with self._records.open("rb") as file:
            file.seek(start)
            for line in itertools.islice(file, max_lines):
                if not line.endswith(b"\n"):
                    break
                end += len(line)
                try:
                    records.append(from_line(line))
                except (ValueError, TypeError, KeyError) as error:
                    message = "%s: a line of %d bytes is not a record and is skipped (%r)"
                    logger.error(message, self._records, len(line), error)
        return records, end

    def put(self, *records: Record) -> None:
        """Append records, from one thread at a time; a kill leaves all of them or none."""
        lines = b"".join(map(to_line, records))
        while lines:
            num_bytes = retry_while_disk_is_full(partial(self._file.write, lines), str(self._records))
            lines = lines[num_bytes:]

    def read_batch(self) -> list[Record] | None:
        """Return the records of the next lines, at most :data:`MAX_BATCH`; None if there are no more."""
        start = self._read_bytes
        records, self._read_bytes = self._read_records(start, MAX_BATCH)
        for record in records:  # metrics get their names in this order, whatever order they are sent in
            if isinstance(record, Update):
                own_names(record.metrics, self.names)
        return records if self._read_bytes > start else None

    def flush_to_disk(self) -> None:
        """Make the records survive a crash of the machine. Call this before MLflow gets any of them.

        A resumed sweep would not know of records that MLflow has and the outbox has lost: it would send them again,
        with another time. And :meth:`mark_delivered` would note more bytes than the file has.
        """
        os.fsync(self._file.fileno())

    def mark_delivered(self) -> None:
        """Note on disk, whole or not at all, that MLflow has all records that were read, and the ids."""
        self._delivered_bytes = self._read_bytes
        state = {"delivered": self._delivered_bytes, "ids": self.ids, "names": self.names}
        with atomic_write(self._state) as partial_state:
            partial_state.write_text(json.dumps(state))

    @property
    def waiting(self) -> int:
        """How many bytes wait to be delivered."""
        return self._records.stat().st_size - self._delivered_bytes


def begin_again(folder: Path, name: str, tracking_uri: str, experiment: str, origin: str) -> None:
    """Have the outbox in ``folder`` make new runs, with all that it has ever told MLflow.

    Args:
        folder: The sweep's folder.
        name: The name of the sweep's new run.
        tracking_uri: The tracking store of the new runs.
        experiment: The name of the experiment.
        origin: The sweep that the new one continues, as a tag of each run; "" if it is the same.
    """
    file = folder / files.OUTBOX_FILE
    if not file.is_file():
        return
    origin_tag = {ORIGIN: origin} if origin else {}
    with atomic_write(file) as partial_file, open_regular_file(file) as old, partial_file.open("wb") as new:
        for line in old:
            try:
                record = from_line(line)
            except (ValueError, TypeError, KeyError):  # damaged, which the delivery says
                new.write(line)
                continue
            if isinstance(record, BeginRun):
                record = replace(record, tags={**record.tags, **origin_tag})
            if isinstance(record, BeginSweep):
                record = replace(
                    record,
                    name=name,
                    tags={**record.tags, OUTBOX: str(int(1000 * time.time()))},
                    tracking_uri=tracking_uri,
                    artifacts=artifact_folder(tracking_uri, experiment),
                )
            new.write(to_line(record))


def tracked_at(folder: Path) -> str | None:
    """Return the tracking address of the sweep in ``folder``; None if it has no outbox, or that cannot be read."""
    try:
        with open_regular_file(folder / files.OUTBOX_FILE) as file:
            record = from_line(file.readline(MAX_JSON_BYTES))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return record.tracking_uri if isinstance(record, BeginSweep) else None
