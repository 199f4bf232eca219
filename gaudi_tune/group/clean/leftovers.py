"""What a trial has started and not ended: runs, writers, exit handlers, threads, processes."""

from __future__ import annotations

import atexit
import faulthandler
import inspect
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any

import psutil

from gaudi_tune.base.errors import USER_CODE_ERRORS
from gaudi_tune.base.words import shortened
from gaudi_tune.group.clean.own_code import is_own_file
from gaudi_tune.private.global_state import frames_of_threads

logger = logging.getLogger(__name__)

END_WITHIN_S = 0.8
"""How long the threads and processes of a trial may take to end once nothing refers to them."""
MOST_FILES = 64
"""How many files more than after the worker's first trial may stay open."""
MAX_COMMAND = 60
"""Most characters of a process's command that a message has."""
WRITER_THREADS = ("tensorboard", "tensorboardX")
"""Libraries whose writers have a thread each, which writes what is left when it is stopped."""
HELPERS = ("resource_tracker", "forkserver", "_inductor", "loky.backend", "torch_shm_manager", "wandb")
"""What the command lines of processes contain that libraries start once, whichever trial needs them first."""


class Leftovers:
    """Ends what scripts rely on the end of their process for, and finds what else trials leave running."""

    def __init__(self) -> None:
        """Note from now on which threads own code starts, and which functions it registers for the process's end."""
        self._exits = ExitStack()
        self._started: list[threading.Thread] = []
        self._threads: set[threading.Thread] = set()
        self._processes = _running_children().keys()
        self._files_after_first: int | None = None
        start_thread, register_exit = threading.Thread.start, atexit.register

        def start(thread: threading.Thread) -> None:
            if _is_called_by_own_code():
                self._started.append(thread)
            start_thread(thread)

        def register(function: Callable[..., object], *arguments: Any, **options: Any) -> Callable[..., object]:
            note = self._exits.callback if _is_called_by_own_code() else register_exit
            note(function, *arguments, **options)
            return function

        atexit.register(self._run_exits)  # where the process ends in the middle of a trial
        threading.Thread.start = start  # type: ignore[method-assign,assignment]
        atexit.register = register  # type: ignore[assignment]

    def watch(self) -> None:
        """Note what runs before a trial."""
        self._threads = set(threading.enumerate())
        self._started.clear()

    def end(self) -> None:
        """Do what the end of the process would do, while the code of the trial is still loaded."""
        self._run_exits()
        _end_runs()
        for thread in set(threading.enumerate()) - self._threads:
            if type(thread).__module__.partition(".")[0] in WRITER_THREADS:
                thread.stop()  # type: ignore[attr-defined]
        faulthandler.cancel_dump_traceback_later()

    def find(self) -> list[str]:
        """Return what stays without the code of the trial. Processes are killed: nothing else would end them."""
        ends_at = time.monotonic() + END_WITHIN_S
        while ((threads := self._threads_left()) or self._processes_left()) and time.monotonic() < ends_at:
            time.sleep(0.02)
        processes = self._processes_left()
        for process in processes:
            with suppress(psutil.Error):  # it has just ended
                process.kill()
        files = psutil.Process().num_fds()
        if self._files_after_first is None:
            self._files_after_first = files  # what is imported has some, and loader processes, which are kept
        problems = [f"the thread {thread.name} still runs" for thread in threads]
        problems += [f"the process {shortened(command, MAX_COMMAND)} still runs" for command in processes.values()]
        if files > self._files_after_first + MOST_FILES:
            problems.append(f"{files - self._files_after_first} files stay open")
        return problems

    def _run_exits(self) -> None:
        try:
            self._exits.close()  # runs all of them, the last one first
        except USER_CODE_ERRORS:
            logger.warning("a function that the trial registered with atexit has failed", exc_info=True)

    def _threads_left(self) -> list[threading.Thread]:
        """Return the threads that the trial has started or that run its code. Libraries keep others for themselves."""
        frames = frames_of_threads()
        new_threads = [thread for thread in threading.enumerate() if thread not in self._threads]
        return [t for t in new_threads if t in self._started or _runs_own_code(frames.get(t.ident or 0))]

    def _processes_left(self) -> dict[psutil.Process, str]:
        return {process: command for process, command in _running_children().items() if process not in self._processes}


def _end_runs() -> None:
    """End what a script that ends would have ended: its runs at MLflow and Weights & Biases, and its figures."""
    mlflow, wandb, pyplot = (sys.modules.get(name) for name in ("mlflow", "wandb", "matplotlib.pyplot"))
    while mlflow is not None and mlflow.active_run() is not None:
        logger.warning("ended the MLflow run %s that the trial left open", mlflow.active_run().info.run_id)
        mlflow.end_run()
    if wandb is not None and getattr(wandb, "run", None) is not None:
        logger.warning("ended the run of wandb that the trial left open")
        wandb.finish()
    if pyplot is not None:
        pyplot.close("all")


def _runs_own_code(frame: FrameType | None) -> bool:
    return frame is not None and any(is_own_file(outer.f_code.co_filename) for outer, _ in traceback.walk_stack(frame))


def _is_called_by_own_code() -> bool:
    """Whether the user's code has called the function that calls this one."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame and frame.f_back
    return frame is not None and is_own_file(frame.f_code.co_filename)


def _running_children() -> dict[psutil.Process, str]:
    """Return the processes that this one has started, and that these have started, with their commands."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there are none, as in most workers: to look for them at all processes takes long
        return {}
    commands = {}
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            commands[child] = " ".join(child.cmdline())
    return {child: command for child, command in commands.items() if not any(map(command.__contains__, HELPERS))}
