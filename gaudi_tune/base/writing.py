"""Writing files whole or not at all, and waiting while the disk is full: its owner can make room."""

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

TRY_AGAIN_AFTER_S = 2.0
"""Seconds between two tries."""
SAY_EVERY = 30
"""Tries between two warnings."""
FULL = {errno.ENOSPC, errno.EDQUOT}

T = TypeVar("T")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write to. The file there replaces ``path`` at the end, and is ignored after an error.

    A reader finds the old file or the new one, also after a crash of the process or of the machine; once this has
    returned, the new one.
    """
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    yield partial
    with partial.open("rb+") as written:
        os.fsync(written.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # which has the name
    finally:
        os.close(folder)


def once_there_is_room(write: Callable[[], T], what: str) -> T:
    """Call ``write`` until it no longer fails because the disk is full, and return what it returns.

    Args:
        write: Can be called again after it has failed.
        what: What it writes; named in the warning.
    """
    tries = 0
    while True:
        try:
            return write()
        except Exception as error:
            if not is_full(error):
                raise
            if tries % SAY_EVERY == 0:
                logger.warning("the disk is full, %s cannot be written (%s): waiting for space", what, error)
        tries += 1
        time.sleep(TRY_AGAIN_AFTER_S)


def is_full(error: BaseException | None) -> bool:
    """Whether a full file system or a used-up quota caused an error; torch wraps such errors in others."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        error = error.__cause__ or error.__context__
    return False
