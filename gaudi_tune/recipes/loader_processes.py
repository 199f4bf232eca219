"""Processes that load batches. They are started once, and serve all trials of their worker."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Load = Callable[[Any], Any]
"""A function that loads an item; it must be picklable."""

BATCHES_AHEAD = 2
"""How many batches each process may load in advance, as in torch's DataLoader."""
TRIES = 3
"""How often loading a batch is tried if the process dies."""
OPEN_DATA_SETS = 3
"""How many data sets a process keeps open: training, validation and test."""


class LoaderProcesses:
    """A pool of processes that load from any data set, so that none starts with a trial or idles while others work."""

    def __init__(self, count: int) -> None:
        """Prepare the pool. Processes start when there is something to load."""
        self._count = count
        self._executor = self._new_executor()

    def load(self, file: Path, items: Iterable[Item]) -> Iterator[Any]:
        """Yield the loaded items in order, with some loaded in advance.

        Args:
            file: A file with a pickled :data:`Load`. Each process reads it once.
            items: The arguments of that function.

        Raises:
            Exception: The function raised it.
            RuntimeError: The process died each time that an item was loaded.
        """
        remaining = iter(items)
        loading: deque[tuple[Item, Future[Any]]] = deque()
        try:
            while True:
                for item in islice(remaining, BATCHES_AHEAD * self._count - len(loading)):
                    loading.append((item, self._submit(file, item)))
                if not loading:
                    return
                yield self._loaded(file, *loading.popleft())
        finally:  # the next trial does not have to wait for what a stopped trial no longer needs
            for _, future in loading:
                future.cancel()

    def _loaded(self, file: Path, item: Any, future: Future[Any]) -> Any:
        for _ in range(TRIES - 1):
            try:
                return future.result()
            except BrokenProcessPool as error:  # noqa: PERF203  (a batch takes milliseconds)
                logger.warning("a loader process died, starting new ones (%s)", error.__cause__ or error)
                future = self._submit(file, item)
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                f"loader processes died {TRIES} times while they loaded {item}: they were killed, or crashed. Memory "
                f"or /dev/shm may be full: try fewer --set loader_workers, or 0 to see what happens in the worker "
                f"itself"
            ) from error

    def _submit(self, file: Path, item: Any) -> Future[Any]:
        try:
            return self._executor.submit(_load, file, item)
        except BrokenProcessPool:
            self._executor = self._new_executor()
            return self._executor.submit(_load, file, item)

    def _new_executor(self) -> ProcessPoolExecutor:
        # A process that uses an HPU must not be forked: forkserver forks a clean one, which has imported torch. It must
        # not import more, because it imports before it knows this process's sys.path.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["__main__", "torch"])
        return ProcessPoolExecutor(self._count, context, initializer=_begin)


@lru_cache(maxsize=1)
def loader_processes(count: int) -> LoaderProcesses:
    """Return the loader processes of this process; new ones only if their number differs from that of the last call."""
    return LoaderProcesses(count)


def _begin() -> None:
    torch.set_num_threads(1)  # as in torch's DataLoader: the number of processes says how many cores to use
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End when the parent is gone: a parent that is killed cannot close the pool's queue."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@lru_cache(maxsize=OPEN_DATA_SETS)
def _open(file: Path) -> Load:
    load: Load = pickle.loads(file.read_bytes())  # noqa: S301  (the parent process wrote it)
    return load


def _load(file: Path, item: Any) -> Any:
    try:
        return _open(file)(item)
    except Exception as error:  # of what reads a sample, in another process
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:  # an error that cannot be pickled would end the pool
            raise RuntimeError(f"{type(error).__name__}: {error}") from None
        raise
