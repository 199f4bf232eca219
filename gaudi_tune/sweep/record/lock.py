"""Whether a sweep runs: a lock on a file in its folder, which the system releases when the process ends."""

from __future__ import annotations

import fcntl
from pathlib import Path

from gaudi_tune.base.errors import SweepError

LOCK_FILE = "running.lock"
"""In a sweep's folder; locked while a process runs the sweep."""


class SweepLock:
    """The right to run a sweep."""

    def __init__(self, folder: Path) -> None:
        """Take the lock; a SweepError if another process, or another Tuner of this one, runs the sweep."""
        self._file = (folder / LOCK_FILE).open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise SweepError(f"{folder.name}: this sweep is running; wait for it, or end it first") from error

    def release(self) -> None:
        """Give the lock back."""
        self._file.close()


def is_running(folder: Path) -> bool:
    """Return whether a process runs the sweep in ``folder``; False where that may not be read."""
    try:
        file = (folder / LOCK_FILE).open("rb")
    except (FileNotFoundError, PermissionError):
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
