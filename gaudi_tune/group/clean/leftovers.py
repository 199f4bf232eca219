"""What a trial has started and not ended: runs, writers, timers, threads, processes, open files, exit functions."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import inspect
import logging
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from gaudi_tune.group.clean.own_code import is_own, is_own_file
from gaudi_tune.private.global_state import drop_torch_library, frames_of_threads, libraries_noted

logger = logging.getLogger(__name__)

END_WITHIN_S = 0.8
"""How long the threads and processes of a trial may take to end."""
KILLED_WITHIN_S = 10.0
"""How long the kernel may take to end a process that was killed, on a busy machine."""
MOST_THREADS = 8
"""How many threads of trials may wait for something that does not come. Each ends as soon as it wakes up."""
WRITER_THREADS = ("tensorboard", "tensorboardX")
"""Libraries whose writers have a thread each, which writes what is left when it is stopped."""
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "_inductor", "loky.backend",
           "torch_shm_manager", "wandb")  # fmt: skip
"""What the command lines of processes contain that libraries start once, whichever trial needs them first."""
OPEN_FILES = "/dev/fd"
MOST_FILES = 0.5
"""Share of the files that a process may open. If more stay open, its worker gets no other trial."""


class Leftovers:
    """Ends what trials leave behind in this process."""

    def __init__(self) -> None:
        """Note from now on what own code opens, and what it registers for the end of the process."""
        self._exits: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = []
        self._waiting: list[threading.Thread] = []
        self._files: dict[int, tuple[int, int]] = {}
        self._started: list[threading.Thread] = []
        self._libraries: list[Any] = []
        self._noting = libraries_noted(self._note_library)
        self._noting.__enter__()
        self._start_thread = threading.Thread.start
        threading.Thread.start = lambda thread: self._note_start(thread)  # type: ignore[method-assign,assignment]
        self._functions = atexit.register, atexit.unregister, os.open
        atexit.register(self._run_exits)  # where the process ends in the middle of a trial
        atexit.register, atexit.unregister = self._note_exit, self._forget_exit  # type: ignore[assignment]
        os.open = self._note_file
        self.watch()

    def close(self) -> None:
        """Note nothing more."""
        self._noting.__exit__(None, None, None)
        threading.Thread.start = self._start_thread  # type: ignore[method-assign]
        atexit.register, atexit.unregister, os.open = self._functions
        atexit.unregister(self._run_exits)

    def watch(self) -> None:
        """Note what there is before a trial."""
        self._threads_before, self._children_before = set(threading.enumerate()), _children()
        self._files_before = len(os.listdir(OPEN_FILES))

    def end(self) -> list[str]:
        """End what runs, while the code of the trial is still loaded, and return what does not end."""
        self._run_exits()
        _end_runs()
        for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)
        faulthandler.cancel_dump_traceback_later()
        self._files_at_end = len(os.listdir(OPEN_FILES))
        while self._libraries:
            drop_torch_library(self._libraries.pop())
        return self._end_threads()

    def sweep(self) -> list[str]:
        """End processes and close files that are still there without the code of the trial, and return what stays."""
        self._end_processes()
        for number, identity in self._files.items():
            if _identity_of(number) == identity:
                os.close(number)
        self._files.clear()
        count, (limit, _) = len(os.listdir(OPEN_FILES)), resource.getrlimit(resource.RLIMIT_NOFILE)
        if self._files_at_end > max(count, self._files_before):
            logger.warning("closed %d files that the trial left open", self._files_at_end - count)
        return [f"{count} files stay open"] if count > max(MOST_FILES * limit, 2 * self._files_before) else []

    def _note_exit(self, function: Callable[..., object], *arguments: Any, **options: Any) -> Callable[..., object]:
        if _is_called_by_own_code():
            self._exits.append((function, arguments, options))
            return function
        return self._functions[0](function, *arguments, **options)

    def _forget_exit(self, function: Callable[..., object]) -> None:
        self._exits = [registered for registered in self._exits if registered[0] != function]
        self._functions[1](function)

    def _run_exits(self) -> None:
        while self._exits:
            function, arguments, options = self._exits.pop()
            try:
                function(*arguments, **options)
            except BaseException:
                logger.warning("a function that the trial registered with atexit has failed", exc_info=True)

    def _note_file(self, *arguments: Any, **options: Any) -> int:
        number = self._functions[2](*arguments, **options)
        if _is_called_by_own_code():
            self._files[number] = _identity_of(number) or (0, 0)
        return number

    def _note_library(self, library: Any) -> None:
        if _is_called_by_own_code(2):
            self._libraries.append(library)

    def _note_start(self, thread: threading.Thread) -> None:
        if _is_called_by_own_code(2):
            self._started.append(thread)
        self._start_thread(thread)

    def _end_threads(self) -> list[str]:
        frames = frames_of_threads()
        threads = [thread for thread in threading.enumerate() if thread not in self._threads_before]
        threads = [t for t in threads if t in self._started or _is_of_trial(t, frames.get(t.ident or 0))]
        self._started.clear()
        for thread in threads:
            if isinstance(thread, threading.Timer):
                thread.cancel()
            elif hasattr(thread, "stop") and not is_own(type(thread)):
                thread.stop()
            else:  # it ends when it next runs Python code
                number = ctypes.c_ulong(thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(SystemExit))
        ends_at = time.monotonic() + END_WITHIN_S
        for thread in threads:
            thread.join(max(0.0, ends_at - time.monotonic()))
        if threads:
            logger.warning("ended threads that the trial left running: %s", ", ".join(t.name for t in threads))
        self._waiting = [thread for thread in [*self._waiting, *threads] if thread.is_alive()]
        if len(self._waiting) <= MOST_THREADS:
            return []
        return [f"{len(self._waiting)} threads do not end, the last one {self._waiting[-1].name}"]

    def _end_processes(self) -> None:
        for child in multiprocessing.active_children():  # each must be reaped by its own object
            if child.pid in _children() - self._children_before:
                logger.warning("ended the process %s that the trial left running", child.name)
                child.terminate()
                child.join(END_WITHIN_S)
                if child.is_alive():
                    child.kill()
                    child.join(KILLED_WITHIN_S)
        processes = []
        for number in _children() - self._children_before:
            with suppress(psutil.Error):  # it has just ended
                process = psutil.Process(number)
                if not any(helper in " ".join(process.cmdline()) for helper in HELPERS):
                    processes += [process, *process.children(recursive=True)]
        for process in processes:
            with suppress(psutil.Error):
                process.terminate()
        _, alive = psutil.wait_procs(processes, timeout=END_WITHIN_S)
        for process in alive:
            with suppress(psutil.Error):
                process.kill()
        if processes:
            logger.warning("ended %d processes that the trial left", len(processes))


def _end_runs() -> None:
    """End what a script that ends would have ended: its runs at MLflow and Weights & Biases."""
    mlflow, wandb = sys.modules.get("mlflow"), sys.modules.get("wandb")
    try:
        while mlflow is not None and mlflow.active_run() is not None:
            logger.warning("ended the MLflow run %s that the trial left open", mlflow.active_run().info.run_id)
            mlflow.end_run()
        if wandb is not None and getattr(wandb, "run", None) is not None:
            logger.warning("ended the run of wandb that the trial left open")
            wandb.finish()
    except Exception:
        logger.warning("a run that the trial left open could not be ended", exc_info=True)


def _is_of_trial(thread: threading.Thread, frame: FrameType | None) -> bool:
    """Whether a thread runs code of the trial, or writes for it. Threads that libraries keep for themselves stay."""
    if type(thread).__module__.partition(".")[0] in WRITER_THREADS or is_own(type(thread)):
        return True
    if isinstance(thread, threading.Timer) and is_own(thread.function):
        return True
    while frame is not None:
        if is_own_file(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def _is_called_by_own_code(depth: int = 1) -> bool:
    """Whether the user's code has called the function that calls this one, or the one ``depth`` calls above that."""
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        frame = frame and frame.f_back
    return frame is not None and is_own_file(frame.f_code.co_filename)


def _children() -> set[int]:
    """Return the numbers of the processes that this one has started and that are not reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # an error if there are none, as in most workers
    except ChildProcessError:
        return set()
    except AttributeError:  # macOS
        pass
    try:
        lists = [(task / "children").read_text() for task in Path("/proc/self/task").iterdir()]
    except OSError:  # a thread has just ended, or this kernel has no such files
        return {child.pid for child in psutil.Process().children()}
    return {int(number) for numbers in lists for number in numbers.split()}


def _identity_of(number: int) -> tuple[int, int] | None:
    """Return what tells the file of a descriptor from others; None if it is closed."""
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino
