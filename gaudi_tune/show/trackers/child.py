"""A function in a child process: it may end that, as code in C that fails does, and this process goes on."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from gaudi_tune.base.errors import users_error

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux."""
LOOK_EVERY_S = 0.05
"""Seconds between two looks whether the child has ended."""
DONE = b"done"


class ChildError(RuntimeError):
    """The function failed, or its process ended before it returned. The message says which, in a user's words."""


def call_in_child(function: Callable[[], object], within_s: float) -> None:
    """Call a function in a copy of this process, in which no other thread runs. Processes that it starts end with it.

    Raises:
        ChildError: It raised an error, ended its process, or took longer than ``within_s`` seconds.
        OSError: There is no memory for another process.
    """
    (reading, writing), answer = os.pipe(), b""
    os.set_blocking(reading, False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12, where there are other threads
            child = os.fork()
        if child == 0:
            _call_and_exit(function, writing)
        status = _wait(child, within_s)
        with suppress(BlockingIOError):  # it said nothing
            answer = os.read(reading, select.PIPE_BUF)
    finally:
        os.close(reading)
        os.close(writing)
    if status is None:
        raise ChildError(f"it took longer than {within_s:g} s")
    if not answer:
        ending = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise ChildError(f"its process {ending}")
    if answer != DONE:
        raise ChildError(answer.decode(errors="replace"))


def _wait(child: int, within_s: float) -> int | None:
    """Wait for a child, kill what it leaves, and return how it ended; None if that took too long."""
    deadline = time.monotonic() + within_s
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def _call_and_exit(function: Callable[[], object], writing: int) -> NoReturn:
    answer = b""
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        if "torch" in sys.modules:  # its threads were not copied, and it would wait for them
            sys.modules["torch"].set_num_threads(1)
        function()
        answer = DONE
    except BaseException as error:  # from the user's own code
        answer = users_error(error).encode(errors="replace")
    finally:
        with suppress(BaseException):
            os.write(writing, answer[: select.PIPE_BUF])
        os._exit(0)
