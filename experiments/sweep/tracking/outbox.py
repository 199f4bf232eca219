"""What MLflow is to be told, on disk: it survives its process, and a server that is away for however long."""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from trainables.runtime.writing import once_there_is_room, written_whole

logger = logging.getLogger(__name__)

RECORDS_FILE = "mlflow-outbox.jsonl"
"""In a sweep's folder: a record a line, in order."""
STATE_FILE = "mlflow-delivered.json"
"""In a sweep's folder: how many bytes of the records were delivered, and the ids of the runs they went to."""

READ_AT_ONCE = 2000
"""Records that travel together at most."""


class Outbox:
    """Records in the order in which they were put, and how far they were delivered."""

    def __init__(self, folder: Path) -> None:
        """Open the outbox of a sweep; ``folder`` exists."""
        self._records, self._state = folder / RECORDS_FILE, folder / STATE_FILE
        self.ids: dict[str, str] = {}
        """Ids of runs in MLflow by trial; the sweep's own run under "", its experiment under "experiment"."""
        self._delivered, self._state_is_torn = 0, False
        try:
            if self._state.is_file():
                known = json.loads(self._state.read_bytes())
                self.ids, self._delivered = dict(known["ids"]), int(known["delivered"])
        except (ValueError, TypeError, KeyError):  # empty, or of zeros, after a crash of the machine
            self._state_is_torn = True
        self._read_to = self._delivered
        self.interrupted = self._records.is_file()
        """Whether an earlier process wrote to it."""
        self._writing = threading.Lock()
        self._lock = self._records.open("ab", buffering=0)

    def take(self) -> bool:
        """Claim the outbox for this process, whose end gives it back; False if another process delivers from it."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        content = self._records.read_bytes()
        self._cut_torn_line(content)
        self._go_back_to_a_record(content)
        return True

    def close(self) -> None:
        """Give the outbox back."""
        self._lock.close()

    def _cut_torn_line(self, content: bytes) -> None:
        """Remove what a killed process had not finished writing."""
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._lock.truncate(whole)

    def _go_back_to_a_record(self, content: bytes) -> None:
        """See that what is delivered next is a whole record, also after a crash of the machine, which loses writes.

        What is delivered again is doubled nowhere: runs are looked up before they are made, and MLflow keeps a value
        once that has the same name, time and step.
        """
        if self._state_is_torn:
            logger.warning("%s is torn: all records beside it are delivered again, which doubles nothing", self._state)
        whole = content.rfind(b"\n", 0, self._delivered) + 1
        if whole < self._delivered:
            logger.warning(
                "%s: %d bytes of it were delivered, and some of them are lost; going on after the first %d",
                self._records, self._delivered, whole,
            )  # fmt: skip
            self._delivered, self._read_to, self.interrupted = whole, whole, True

    @property
    def path(self) -> Path:
        """The file of the records."""
        return self._records

    @property
    def mark(self) -> str:
        """What tells this sweep's run from those of others of its name: when its first record was put."""
        first = next(iter(self.all()), None)
        return str(first["time_ms"] if first is not None else time.time_ns() // 1_000_000)

    def all(self) -> Iterator[dict[str, Any]]:
        """Yield every record, delivered or not."""
        with self._records.open("rb") as file:
            for line in file:
                if line.endswith(b"\n") and (record := self._record_in(line)) is not None:
                    yield record

    def _record_in(self, line: bytes) -> dict[str, Any] | None:
        """Return the record of a line; None, after saying so, if a crash of the machine left something else there."""
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            logger.error("%s: a line of %d bytes is no record and is passed over", self._records, len(line))
            return None
        return record

    def put(self, record: dict[str, Any]) -> None:
        """Append a record."""
        # PostgreSQL takes no zero character, HTTP no half of a pair; a record that always fails would stop all others.
        text = json.dumps(record, default=str, ensure_ascii=False).encode(errors="replace")
        line = text.replace(rb"\u0000", rb"\ufffd") + b"\n"
        with self._writing:
            while line:
                line = line[once_there_is_room(partial(self._lock.write, line), str(self._records)) :]

    def read(self) -> list[dict[str, Any]] | None:
        """Return the records of the next lines, at most :data:`READ_AT_ONCE`; None if there is none.

        A torn last line waits until it is whole.
        """
        records: list[dict[str, Any]] = []
        began = self._read_to
        with self._records.open("rb") as file:
            file.seek(self._read_to)
            for line in itertools.islice(file, READ_AT_ONCE):
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                if (record := self._record_in(line)) is not None:
                    records.append(record)
        return records if self._read_to > began else None

    def keep(self) -> None:
        """See that a crash of the machine leaves what was read; call it before anybody is told of that.

        Of records that MLflow has and the outbox has lost, a resumed sweep would not know: it would tell them again, at
        another time. And :meth:`delivered` would note more bytes than there are.
        """
        os.fsync(self._lock.fileno())

    def delivered(self) -> None:
        """Note that all that was read is at MLflow, and the ids; whole or not at all."""
        self._delivered = self._read_to
        with written_whole(self._state) as partial_state:
            partial_state.write_text(json.dumps({"delivered": self._delivered, "ids": self.ids}))

    @property
    def waiting(self) -> int:
        """How many bytes wait to be delivered."""
        return self._records.stat().st_size - self._delivered

    def belongs_to(self, store: str) -> bool:
        """Whether its records are for a tracking store, which the first of them names."""
        with self._records.open("rb") as file:
            first = file.readline()
        record = self._record_in(first) if first.endswith(b"\n") else None
        return record is not None and record.get("store") == store

    @staticmethod
    def left_in(storage: Path) -> list[Path]:
        """Return the folders of this user's sweeps below ``storage`` whose records were not all delivered.

        One that cannot be read is named in a warning.
        """
        return [folder for folder in sorted(storage.glob("*")) if _is_left(folder)]


def is_own(folder: Path) -> bool:
    """Whether a sweep's outbox is this user's: its folder and its records are.

    A record says which files to send and which function to call. Who can write to a folder and a file of this user is
    this user, or was let in by this user; to such a folder a resumed sweep gives more, as it unpickles what Tune left
    there. So what this function says suffices, and any module that the user's sweeps import may make a model.

    Raises:
        OSError: There is no outbox, or nobody may know of it.
    """
    return all(path.stat().st_uid == os.geteuid() for path in (folder, folder / RECORDS_FILE))


def _is_left(folder: Path) -> bool:
    try:
        if not is_own(folder):  # its owner's next sweep delivers it
            return False
        with closing(Outbox(folder)) as outbox:
            return outbox.waiting > 0
    except (FileNotFoundError, NotADirectoryError):  # no sweep, or one that is being removed
        return False
    except OSError as error:
        logger.warning("what %s has for MLflow stays there: it cannot be read (%s); mend or remove it", folder, error)
        return False


def trial_key(number: int) -> str:
    """Return what an outbox calls a trial, and MLflow's tag ``trial``."""
    return f"{number:03d}"
