"""Records on their way to MLflow, on disk: they survive their process, and a server that is away for however long."""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from gaudi_tune.base.writing import atomic_write, retry_while_disk_is_full
from gaudi_tune.show.trackers.records import BeginSweep, Record, from_line, to_line

logger = logging.getLogger(__name__)

RECORDS_FILE = "mlflow-outbox.jsonl"
"""In a sweep's folder: a record a line, in order."""
STATE_FILE = "mlflow-delivered.json"
"""In a sweep's folder: how many bytes of the records were delivered, and the ids of the runs they went to."""

READ_AT_ONCE = 2000
"""Records that travel together at most."""


def is_delivered(folder: Path) -> bool:
    """Whether MLflow has all records of a sweep that is over; nothing is written."""
    if not (folder / RECORDS_FILE).is_file():
        return True
    try:
        delivered = int(json.loads((folder / STATE_FILE).read_bytes())["delivered"])
    except (OSError, ValueError, TypeError, KeyError):
        return False
    return delivered >= (folder / RECORDS_FILE).stat().st_size


class Outbox:
    """Records in the order in which they were put, and how far they were delivered.

    One process puts records into it, the one that runs the sweep (``state.lock``); one at a time delivers them.
    """

    def __init__(self, folder: Path) -> None:
        """Open the outbox of a sweep that no other process runs; ``folder`` exists."""
        self.folder = folder
        self._records, self._state = folder / RECORDS_FILE, folder / STATE_FILE
        self.ids: dict[str, str] = {}
        """Ids in MLflow: of the runs, by what records call them, of the experiment and of models."""
        self.reopened = self._records.is_file()
        """Whether an earlier process wrote to it, and may have delivered more than it noted."""
        self._file = self._records.open("ab", buffering=0)
        self._writing = threading.Lock()
        # A killed process had not finished its last line.
        self._file.truncate(self._records.read_bytes().rfind(b"\n") + 1)
        self._load()

    def _load(self) -> None:
        """Read how far an earlier process came.

        After a crash of the machine that may be unknown, or more than there is. What is delivered again is doubled
        nowhere: runs are looked up before they are made, and MLflow keeps a value once that has the same name, time
        and step.
        """
        delivered, size = 0, self._records.stat().st_size
        try:
            known = json.loads(self._state.read_bytes())
            self.ids, delivered = dict(known["ids"]), int(known["delivered"])
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError):
            logger.warning("%s is torn: all records beside it are delivered again, which doubles nothing", self._state)
        if delivered > size:
            logger.warning(
                "%s: %d bytes of it were delivered, and some of them are lost; going on after the first %d",
                self._records, delivered, size,
            )  # fmt: skip
        self._delivered = self._read_to = min(delivered, size)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Deliver from this outbox alone: wait for another process that does, and go on where it stopped."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._load()
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file of the records."""
        self._file.close()

    def __iter__(self) -> Iterator[Record]:
        """Yield every record, delivered or not."""
        return iter(self._from(0)[0])

    def _from(self, start: int, at_most: int | None = None) -> tuple[list[Record], int]:
        """Return the records of the lines after ``start`` bytes, and how many bytes there are up to the last of them.

        A line that a crash of the machine spoiled is skipped, with an error in the log; a torn last one waits until it
        is whole.
        """
        records, end = [], start
        with self._records.open("rb") as file:
            file.seek(start)
            for line in itertools.islice(file, at_most):
                if not line.endswith(b"\n"):
                    break
                end += len(line)
                try:
                    records.append(from_line(line))
                except (ValueError, TypeError, KeyError) as error:
                    said = "%s: a line of %d bytes is not a record and is skipped (%r)"
                    logger.error(said, self._records, len(line), error)
        return records, end

    def put(self, record: Record) -> None:
        """Append a record; any thread may."""
        line = to_line(record)
        with self._writing:
            while line:
                line = line[retry_while_disk_is_full(partial(self._file.write, line), str(self._records)) :]

    def read(self) -> list[Record] | None:
        """Return the records of the next lines, at most :data:`READ_AT_ONCE`; None if there is none."""
        began = self._read_to
        records, self._read_to = self._from(began, READ_AT_ONCE)
        return records if self._read_to > began else None

    def keep(self) -> None:
        """See that what was read survives a crash of the machine; call it before MLflow gets any of it.

        A resumed sweep would not know of records that MLflow has and the outbox has lost: it would send them again,
        with another time. And :meth:`delivered` would note more bytes than there are.
        """
        os.fsync(self._file.fileno())

    def delivered(self) -> None:
        """Note that all that was read is at MLflow, and the ids; whole or not at all."""
        self._delivered = self._read_to
        with atomic_write(self._state) as partial_state:
            partial_state.write_text(json.dumps({"delivered": self._delivered, "ids": self.ids}))

    @property
    def waiting(self) -> int:
        """How many bytes wait to be delivered."""
        return self._records.stat().st_size - self._delivered


def tracked_at(folder: Path) -> str | None:
    """Return the tracking address of the sweep in ``folder``; None if it has no outbox, or its first line is torn."""
    try:
        with (folder / RECORDS_FILE).open("rb") as file:
            first = from_line(file.readline())
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    return first.tracking_uri if isinstance(first, BeginSweep) else None
