"""What a train loop may do to the process of its worker, and the next trial must not notice."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


def memory_share() -> float:
    """Return the share of the host's memory that this process has."""
    return float(psutil.Process().memory_info().rss / psutil.virtual_memory().total)


class TrialFolders:
    """The current folders of a worker's trials: each trial begins in an empty one.

    Otherwise a loop that looks for a checkpoint in its current folder would continue from that of an earlier trial.
    """

    def __init__(self, parent: Path, *, may_remove: bool) -> None:
        """Make the folders in ``parent``. Of the workers that share it, one may remove files."""
        self._parent, self._may_remove = parent, may_remove
        self._folder: Path | None = None
        self._count = 0
        if may_remove:  # those of lost workers of the same group
            for folder in parent.glob("[0-9]*-*"):
                shutil.rmtree(folder, ignore_errors=True)

    def enter_next(self, trial: str) -> None:
        """Make the folder of a trial, and the current one, and remove the files of the trial before it."""
        if self._folder is not None and self._may_remove:
            with suppress(OSError):  # the trial may have removed its folder
                _empty(self._folder)
        self._count += 1
        self._folder = self._parent / f"{self._count:04d}-{trial}"
        self._folder.mkdir(parents=True, exist_ok=True)
        os.chdir(self._folder)


def _empty(folder: Path) -> None:
    """Remove what is in a folder. The folder itself stays: processes that are kept may be in it."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def copies_end_here() -> Iterator[None]:
    """End a copy of this process that was forked inside the block where the block ends.

    Beyond it, the copy would serve trials as if it were the worker.
    """
    worker = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != worker:
            os._exit(1)


@contextmanager
def standard_files_restored() -> Iterator[None]:
    """Restore the standard input, output and error of this process after the block, which may close or replace them.

    The next file to be opened would otherwise get the number of the output, and all that is printed.
    """
    streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    copies = [os.dup(number) for number in range(3)]
    try:
        yield
    finally:
        for number, copy in enumerate(copies):
            with suppress(OSError):  # the loop has closed the copy, too
                os.dup2(copy, number)
                os.close(copy)
        for number, (name, stream) in enumerate(streams.items()):
            if stream is not None and stream.closed:
                mode = "r" if name == "stdin" else "w"
                stream = open(number, mode, 1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
