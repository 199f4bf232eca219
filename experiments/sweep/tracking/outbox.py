"""What MLflow is to be told, on disk: it survives its process, and a server that is away for however long."""

from __future__ import annotations

import fcntl
import itertools
import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from trainables.runtime.writing import once_there_is_room, written_whole

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
        known: dict[str, Any] = json.loads(self._state.read_text()) if self._state.is_file() else {}
        self.ids: dict[str, str] = known.get("ids", {})
        """Ids of runs in MLflow by trial; the sweep's own run under "", its experiment under "experiment"."""
        self._delivered, self._read_to = known.get("delivered", 0), known.get("delivered", 0)
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
        self._cut_torn_line()
        return True

    def close(self) -> None:
        """Give the outbox back."""
        self._lock.close()

    def _cut_torn_line(self) -> None:
        """Remove what a killed process had not finished writing."""
        content = self._records.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._lock.truncate(whole)

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
                if line.endswith(b"\n"):
                    yield json.loads(line)

    def put(self, record: dict[str, Any]) -> None:
        """Append a record."""
        # PostgreSQL takes no zero character, HTTP no half of a pair; a record that always fails would stop all others.
        text = json.dumps(record, default=str, ensure_ascii=False).encode(errors="replace")
        line = text.replace(rb"\u0000", rb"\ufffd") + b"\n"
        with self._writing:
            while line:
                line = line[once_there_is_room(partial(self._lock.write, line), str(self._records)) :]

    def read(self) -> list[dict[str, Any]]:
        """Return the next records, at most :data:`READ_AT_ONCE`; a torn last line waits until it is whole."""
        records: list[dict[str, Any]] = []
        with self._records.open("rb") as file:
            file.seek(self._read_to)
            for line in itertools.islice(file, READ_AT_ONCE):
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                records.append(json.loads(line))
        return records

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
        return first.endswith(b"\n") and json.loads(first).get("store") == store

    @staticmethod
    def left_in(storage: Path) -> list[Path]:
        """Return the folders of sweeps below ``storage`` whose records were not all delivered."""
        return [found.parent for found in sorted(storage.glob(f"*/{RECORDS_FILE}")) if Outbox(found.parent).waiting]


def trial_key(number: int) -> str:
    """Return what an outbox calls a trial, and MLflow's tag ``trial``."""
    return f"{number:03d}"
