"""The lock of a running sweep: on a file in its folder, released by the system when the process ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import LOCK_FILE, open_regular_file
from gaudi_tune.storage.fetch import RUNS_ELSEWHERE


class SweepLock:
    """The right to run a sweep."""

    def __init__(self, folder: Path) -> None:
        """Take the lock.

        Raises:
            SweepError: Another process, or another Tuner in this process, runs the sweep.
        """
        self._file = (folder / LOCK_FILE).open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise SweepError(f"{folder.name}: this sweep is running; wait for it, or end it first") from error

    def release(self) -> None:
        """Release the lock, also where a child process has a copy of it."""
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()


def is_running(folder: Path) -> bool:
    """Return whether a process runs the sweep in ``folder``; False if the lock file may not be read, or is none."""
    if os.path.lexists(folder / RUNS_ELSEWHERE):
        return True
    try:
        file = open_regular_file(folder / LOCK_FILE)
    except OSError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
