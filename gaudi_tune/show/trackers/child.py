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
LOOK_EVERY_S = 0.1
"""Seconds between two looks whether the child has ended."""
DONE = "done"


class ChildError(RuntimeError):
    """The function failed, or its process ended before it returned. The message says which, in a user's words."""


def call_in_child(function: Callable[[], object], within_s: float) -> None:
    """Call a function in a copy of this process, which has one thread.

    Raises:
        ChildError: It raised an error, ended its process, or took longer than ``within_s`` seconds.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12, where there are other threads
        child = os.fork()
    if child == 0:
        os.close(reading)
        _call_and_exit(function, writing)
    os.close(writing)
    answer, status, deadline = b"", None, time.monotonic() + within_s
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while status is None and time.monotonic() < deadline:
            if select.select([pipe], [], [], LOOK_EVERY_S)[0]:
                part = pipe.read(4096)
                answer += part
                if part:
                    continue
            ended, code = os.waitpid(child, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if ended else None
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise ChildError(f"it took longer than {within_s:g} s")
    text = answer.decode(errors="replace")
    if not text:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        raise ChildError(f"its process {how}")
    if text != DONE:
        raise ChildError(text)


def _call_and_exit(function: Callable[[], object], writing: int) -> NoReturn:
    text = ""
    try:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        if "torch" in sys.modules:  # its threads were not copied, and it would wait for them
            sys.modules["torch"].set_num_threads(1)
        function()
        text = DONE
    except BaseException as error:  # from the user's own code
        text = users_error(error)
    finally:
        with suppress(BaseException):
            os.write(writing, text.encode(errors="replace")[: select.PIPE_BUF])
        os._exit(0)
