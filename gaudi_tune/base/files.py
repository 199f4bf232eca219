"""The files of a sweep by name; reading files as data, writing them whole, and waiting for space on a full disk."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

logger = logging.getLogger(__name__)

# The files and folders in the folder of a sweep. Each name is here and nowhere else.
SWEEP_FILE = "sweep.json"
"""What the sweep began with."""
STATE_LOG = "state.log"
"""The state of the sweep, as a log of what has changed."""
STUDY_FILE = "optuna.log"
"""The trials that have ended, for Optuna's tools: ``optuna-dashboard .../optuna.log``."""
SUMMARY_FILE = "summary.json"
"""The result, which is written when the sweep ends."""
REPORT_FILE = "report.html"
"""The page with the numbers, the pictures and all trials."""
OUTBOX_FILE = "mlflow-outbox.jsonl"
"""The records for MLflow, in the order of events."""
DELIVERED_FILE = "mlflow-delivered.json"
"""How many bytes of the outbox have been delivered, and the ids of their runs."""
LOCK_FILE = "running.lock"
"""The lock that the process of a running sweep holds."""
OWNER_FILE = "owner.json"
"""The machine that runs the sweep, if it has a copy in a storage."""
GROUPS_FOLDER = "worker_groups"
"""What Ray Train writes about the worker groups, and what each trial waits for."""

MAX_JSON_BYTES = 64 * 2**20
"""The largest JSON file that is read. The summary of ten thousand trials has about 10 MB."""
RETRY_AFTER_S = 2.0
"""Seconds between two tries to write to a full disk."""
TRIES_PER_WARNING = 30
"""Tries from one warning to the next."""
DISK_FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT}
DISK_FULL_TEXTS = re.compile(r"^\[enforce fail at inline_container\.cc:\d+\] \. unexpected pos |\(os error 28\)$")
"""What torch and safetensors say of a full disk where they open the file themselves, without an error of the system."""

T = TypeVar("T")


def open_regular_file(path: Path) -> BinaryIO:
    """Open a file for reading.

    Raises:
        OSError: There is no such file, or it is something else: a folder, a pipe, which nobody may ever fill, or a
            link, which may lead anywhere.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(f"{path} is a link, and a sweep's files are read from its own folder") from error
        raise
    file = open(descriptor, "rb")  # noqa: SIM115  (it is returned)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError(f"{path} is not a regular file")
    return file


def read_json_text(path: Path) -> bytes:
    """Return the text of a JSON file, as :func:`open_regular_file` opens it.

    Raises:
        OSError: It cannot be read, or is larger than :data:`MAX_JSON_BYTES`.
    """
    with open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_JSON_BYTES:
            raise OSError(f"{path} has {size / 2**20:.0f} MB, and at most {MAX_JSON_BYTES / 2**20:.0f} MB are read")
        return file.read()


def read_json(path: Path) -> Any:
    """Return what a JSON file says; an OSError if it cannot be read, a ValueError if it is not JSON."""
    return from_json(read_json_text(path))


def from_json(text: bytes) -> Any:
    """Return what JSON says; a ValueError if it is none."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which replaces ``path`` at the end of the block unless an error ends it.

    A reader finds either the old file or the new one, even after the process or the machine has crashed. Once the block
    has ended, the new file is on disk.
    """
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    yield partial
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name of the file is part of the folder, not of the file
    finally:
        os.close(folder)


def retry_while_disk_is_full(write: Callable[[], T], description: str) -> T:
    """Call ``write`` until it no longer fails because the disk is full, and return its result.

    Args:
        write: A function that can be called again after it has failed.
        description: What it writes, for the warning.
    """
    tries = 0
    while True:
        try:
            return write()
        except Exception as error:  # a library may wrap the error of the system: torch does
            if not is_disk_full(error):
                raise
            if tries % TRIES_PER_WARNING == 0:
                logger.warning("the disk is full, %s cannot be written (%s): waiting for space", description, error)
        tries += 1
        time.sleep(RETRY_AFTER_S)


def is_disk_full(error: BaseException | None) -> bool:
    """Whether a full disk or an exceeded quota caused an error. Its causes count too: torch wraps such errors."""
    while error is not None:
        if (isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS) or DISK_FULL_TEXTS.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def files_below(root: Path) -> list[Path]:
    """Return the visible files below a folder in order, also those in linked folders. Each folder is entered once."""
    files, entered = [], set[str]()
    for folder, folders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        folders[:] = [name for name in folders if not name.startswith((".", "__")) and real not in entered]
        if real not in entered:
            files += [Path(folder, name) for name in names if not name.startswith(".")]
        entered.add(real)
    return sorted(files)
