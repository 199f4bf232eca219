"""Reading what others may have left in a folder: as data, within bounds, and never waiting for a writer."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

MAX_JSON_BYTES = 64 * 2**20
"""The largest JSON file that is read. The summary of ten thousand trials has about 10 MB."""
MAX_DEPTH = 100
"""How deep JSON may be nested: what reads or writes it later calls itself for each level."""


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


def read_regular_file(path: Path) -> bytes:
    """Return the content of a file, as :func:`open_regular_file` opens it."""
    with open_regular_file(path) as file:
        return file.read()


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
    """Return what a JSON file says.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not JSON, or is nested too deep.
    """
    return from_json(read_json_text(path))


def from_json(text: bytes) -> Any:
    """Return what JSON says; a ValueError if it is none, or is nested too deep."""
    try:
        content = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    level = [content]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return content
    raise ValueError("it is nested too deep")


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
