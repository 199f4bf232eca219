"""What a train loop may do to the process of its worker, and the next trial must not notice."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil


def memory_share() -> float:
    """Return the share of the host's memory that this process has."""
    return float(psutil.Process().memory_info().rss / psutil.virtual_memory().total)


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
