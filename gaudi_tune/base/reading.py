"""Reading what others may have left in a folder: as data, and never waiting for a writer."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_regular_file(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: There is no such file, or it is something else, such as a folder or a pipe, which nobody may ever fill.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read()
