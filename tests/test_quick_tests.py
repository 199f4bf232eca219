"""A quick test may not start a process: each of these is one, and tries to."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Callable

import pytest


def fork() -> None:
    if os.fork() == 0:
        os._exit(0)


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.Popen(["true"]),
        lambda: os.system("true"),
        fork,
        lambda: multiprocessing.get_context("forkserver").Process(target=print).start(),
    ],
    ids=["Popen", "system", "fork", "forkserver"],
)
def test_one_that_starts_a_process_fails(start: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"test_one_that_starts.* starts a process .*: mark it"):
        start()
