"""Processes that load batches: started once, and kept for all trials of the worker that they load for."""

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

Asked = TypeVar("Asked")
Load = Callable[[Any], Any]
"""Takes what is asked for, and returns it loaded; pickled."""

AHEAD = 2
"""How many batches each process may be ahead of the training, as with torch's DataLoader."""
TRIES = 3
"""How often a batch is tried to load whose process dies."""
OPEN = 3
"""How many data sets a process keeps open: of training, validation and test."""


class LoaderProcesses:
    """Processes that load for every data set alike: none starts with a trial, and none waits while another works."""

    def __init__(self, count: int) -> None:
        """Prepare; a process starts when there is something for it to load."""
        self._count = count
        self._executor = self._new_executor()

    def load(self, file: Path, asked: Iterable[Asked]) -> Iterator[Any]:
        """Yield what is asked for in this order, loaded some batches ahead.

        Args:
            file: Holds a pickled :data:`Load`. Each process reads it once.
            asked: What that takes, one after the other.

        Raises:
            Exception: Loading raised it.
            RuntimeError: The processes that load a batch die.
        """
        to_ask = iter(asked)
        loading: deque[tuple[Asked, Future[Any]]] = deque()
        try:
            while True:
                more = islice(to_ask, AHEAD * self._count - len(loading))
                loading.extend((one, self._submit(file, one)) for one in more)
                if not loading:
                    return
                yield self._loaded(file, *loading.popleft())
        finally:  # a trial that is stopped leaves nothing for the next to wait for
            for _, future in loading:
                future.cancel()

    def _loaded(self, file: Path, one: Any, future: Future[Any]) -> Any:
        for _ in range(TRIES - 1):
            try:
                return future.result()
            except BrokenProcessPool as error:  # noqa: PERF203  (a batch takes milliseconds)
                logger.warning("a loader process died, starting new ones (%s)", error.__cause__ or error)
                future = self._submit(file, one)
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                f"loader processes died {TRIES} times while they loaded {one}: they were killed, or crashed. Memory or "
                f"/dev/shm may be full: try fewer --set loader_workers, or 0 to see what happens in the worker itself"
            ) from error

    def _submit(self, file: Path, one: Any) -> Future[Any]:
        try:
            return self._executor.submit(_load, file, one)
        except BrokenProcessPool:
            self._executor = self._new_executor()
            return self._executor.submit(_load, file, one)

    def _new_executor(self) -> ProcessPoolExecutor:
        # A process that uses an HPU must not be forked: forkserver forks a clean one, which has torch already.
        # Not more: it imports before it is told where the modules of this process are.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["__main__", "torch"])
        return ProcessPoolExecutor(self._count, context, initializer=_begin)


@lru_cache(maxsize=1)
def loader_processes(count: int) -> LoaderProcesses:
    """Return the loader processes of this process; others than those of the last call only if their number differs."""
    return LoaderProcesses(count)


def _begin() -> None:
    torch.set_num_threads(1)  # as in torch's DataLoader: there are as many processes as the user wants to be busy
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that they load for
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End when the parent is gone, however it went; a killed one cannot say so, and the pool's queue stays open."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@lru_cache(maxsize=OPEN)
def _opened(file: Path) -> Load:
    load: Load = pickle.loads(file.read_bytes())  # noqa: S301  (this process's parent wrote it, for nobody else)
    return load


def _load(file: Path, one: Any) -> Any:
    try:
        return _opened(file)(one)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:  # it would end the pool on its way back
            raise RuntimeError(f"{type(error).__name__}: {error}") from None
        raise
