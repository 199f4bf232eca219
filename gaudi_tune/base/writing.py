"""Atomic writing of files, and waiting for space while the disk is full."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 2.0
"""Seconds between two tries."""
TRIES_PER_WARNING = 30
"""Tries from one warning to the next."""
DISK_FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT}

T = TypeVar("T")


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
        except Exception as error:
            if not is_disk_full(error):
                raise
            if tries % TRIES_PER_WARNING == 0:
                logger.warning("the disk is full, %s cannot be written (%s): waiting for space", description, error)
        tries += 1
        time.sleep(RETRY_AFTER_S)


def is_disk_full(error: BaseException | None) -> bool:
    """Whether a full disk or an exceeded quota caused an error. Its causes count too: torch wraps such errors."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS:
            return True
        error = error.__cause__ or error.__context__
    return False
