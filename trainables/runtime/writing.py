"""Writing files whole or not at all, and waiting for room: whoever owns a full disk can make some."""

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
"""How long to wait before each new try."""
SAY_EVERY = 30
"""After how many tries to say so again."""
FULL = {errno.ENOSPC, errno.EDQUOT}

T = TypeVar("T")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Hand out a path to write to. What is there at the end takes the place of ``path``; after an error nothing does.

    Whoever reads ``path`` meanwhile, or after a crash, also one of the machine, finds the old file or the new one.
    """
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    yield partial
    with partial.open("rb+") as written:
        os.fsync(written.fileno())
    partial.replace(path)


def once_there_is_room(write: Callable[[], T], what: str) -> T:
    """Call ``write`` again and again until it does not fail for want of room, and return what it returns.

    Args:
        write: Can be called again after it has failed.
        what: What it writes, for the warning.
    """
    tries = 0
    while True:
        try:
            return write()
        except Exception as error:
            if not is_full(error):
                raise
            if tries % SAY_EVERY == 0:
                logger.warning("no room for %s (%s): waiting until there is", what, error)
        tries += 1
        time.sleep(TRY_AGAIN_AFTER_S)


def is_full(error: BaseException | None) -> bool:
    """Whether an error came of a full file system, or of a used-up quota; torch's own errors hide that in theirs."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        error = error.__cause__ or error.__context__
    return False
