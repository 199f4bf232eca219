"""The lock of a running sweep: on a file in its folder, released by the system when the process ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import LOCK_FILE, open_regular_file
from gaudi_tune.storage.fetch import RUNS_ELSEWHERE


def lock_sweep(folder: Path) -> BaseFileLock:
    """Take the right to run a sweep, and return the lock that holds it.

    Raises:
        SweepError: Another process, or another Tuner in this process, runs the sweep.
    """
    lock = FileLock(folder / LOCK_FILE, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise SweepError(f"{folder.name}: this sweep is running; wait for it, or end it first") from error
    return lock


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
