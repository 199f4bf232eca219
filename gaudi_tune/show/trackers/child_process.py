"""Runs a function in a child process. If it crashes that, as code in C can, this process goes on."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from gaudi_tune.base.errors import users_error

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux: a sweep that is killed leaves no process that makes its model."""


class ChildError(RuntimeError):
    """The function failed, or its process ended before it returned. The message says which, in a user's words."""


def call_in_child(function: Callable[[], object], within_s: float) -> None:
    """Call a function in a copy of this process, which has what it imports. Processes that it starts end with it.

    Raises:
        ChildError: It raised an error, ended its process, or took longer than ``within_s`` seconds.
        OSError: There is no memory for another process.
    """
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    child = context.Process(target=_call, args=(function, writing))
    with reading:
        with writing, warnings.catch_warnings():  # the child alone keeps the end that writes: it closes with the child
            warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12, where there are other threads
            child.start()
        try:
            problem = reading.recv() if reading.poll(within_s) else f"it took longer than {within_s:g} s"
            child.kill()
        except EOFError:  # it has ended without a word
            problem = None
    assert child.pid is not None, "it was started"
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.join()
    status = child.exitcode or 0
    child.close()
    if problem is None:
        ending = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        problem = f"its process {ending}"
    if problem:
        raise ChildError(problem)


def _call(function: Callable[[], object], writing: Connection) -> None:
    """Call the function, and send its error in a user's words; "" if it has none."""
    problem = ""
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        if "torch" in sys.modules:  # its threads were not copied, and it would wait for them
            sys.modules["torch"].set_num_threads(1)
        function()
    except BaseException as error:  # from the user's own code
        problem = users_error(error)
    writing.send(problem)
