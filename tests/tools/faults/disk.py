"""File systems for a sweep's folder that are full or stall when told to; mounting them takes root's rights."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILLED_MB, STALLED_MB = 64, 512
"""Sizes of the file systems."""


@contextmanager
def file_system_that_fills(folder: Path) -> Iterator[None]:
    """Mount a small file system in memory."""
    _run("mount", "-t", "tmpfs", "-o", f"size={FILLED_MB}m", "none", folder)
    try:
        yield
    finally:
        _run("umount", "--lazy", folder)


@contextmanager
def file_system_that_stalls(folder: Path) -> Iterator[None]:
    """Mount a file system in a file, which can be frozen."""
    image = folder.with_name("disk")
    with image.open("wb") as file:
        file.truncate(STALLED_MB * 2**20)
    _run("mkfs.ext4", "-q", image)
    _run("mount", "-o", "loop", image, folder)
    try:
        yield
    finally:
        _run("umount", "--lazy", folder)


@contextmanager
def frozen(folder: Path) -> Iterator[None]:
    """Let every write to the file system of a folder wait, also in processes that are killed meanwhile."""
    _run("fsfreeze", "--freeze", folder)
    try:
        yield
    finally:
        _run("fsfreeze", "--unfreeze", folder)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)
