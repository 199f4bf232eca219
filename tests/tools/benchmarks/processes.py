"""What a process and all that it started use: how many processes, and how much memory."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil

SAMPLE_EVERY_S = 1.0
"""Often enough to see every process of a trial, which lives for seconds."""
MEMORY_EVERY = 8
"""Samples between two readings of the memory, which takes the kernel about a second for 30 processes with torch."""


class TreeMonitor(threading.Thread):
    """Watches a process tree while a block runs."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(root)
        self._ended = threading.Event()
        self._seen: set[tuple[int, float]] = set()
        self.peak_pss = 0
        """Most memory at any sample: bytes of proportional set size, shared pages divided among those who share."""

    @property
    def processes(self) -> int:
        """Processes seen, the root included."""
        return len(self._seen)

    def run(self) -> None:
        sample = 0
        while not self._ended.wait(SAMPLE_EVERY_S):
            tree = self._tree()
            self._seen |= {(process.pid, process.create_time()) for process in tree}
            if sample % MEMORY_EVERY == 0:
                self.peak_pss = max(self.peak_pss, sum(_pss_of(process) for process in tree))
            sample += 1

    def __enter__(self) -> TreeMonitor:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        self.join()

    def _tree(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def _pss_of(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:  # it ended in between
        return 0
