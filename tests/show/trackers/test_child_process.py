from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.show.trackers.child_process import ChildError, call_in_child
from tests.helpers.team_server import wait_until

pytestmark = pytest.mark.processes


def test_its_answer_arrives_also_while_this_process_computes() -> None:
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=compute) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(12):
            call_in_child(lambda number=number: time.sleep(0.01 * number), 30)  # type: ignore[misc]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_processes_that_it_started_end_with_it(tmp_path: Path) -> None:
    def start() -> None:
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
        process.start()
        (tmp_path / "pid").write_text(str(process.pid))

    call_in_child(start, 30)
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


class PanicError(BaseException):
    """What code in Rust raises."""


def leave() -> None:
    raise SystemExit(3)


def panic() -> None:
    raise PanicError("no such tensor")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (leave, r"SystemExit: 3 \(.*test_child_process\.py, line \d+\)"),
        (panic, r"PanicError: no such tensor \(.*test_child_process\.py, line \d+\)"),
        (lambda: ctypes.string_at(0), "its process was killed by signal 11"),
        (lambda: os._exit(7), "its process ended with status 7"),
        (lambda: time.sleep(600), r"it took longer than 0\.2 s"),
    ],
    ids=["leaves", "panics", "crashes", "vanishes", "hangs"],
)
def test_an_error_or_the_end_of_its_process_is_named(function: Callable[[], object], says: str) -> None:
    with pytest.raises(ChildError, match=f"^{says}$"):
        call_in_child(function, 0.2 if "longer" in says else 60)


def test_no_file_stays_open() -> None:
    before = os.listdir("/proc/self/fd")
    call_in_child(lambda: None, 30)
    with pytest.raises(ChildError, match="ZeroDivisionError: "):
        call_in_child(lambda: 1 // 0, 30)
    with pytest.raises(ChildError, match=r"it took longer than 0\.2 s"):
        call_in_child(lambda: time.sleep(600), 0.2)
    assert os.listdir("/proc/self/fd") == before


WAITING = """
import os, pathlib, sys, time
from gaudi_tune.show.trackers.child_process import call_in_child

def wait():
    pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()}.")
    time.sleep(600)

call_in_child(wait, 600)
"""


def test_it_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "process"
    with subprocess.Popen([sys.executable, "-c", WAITING, str(note)], cwd=PROJECT_ROOT) as parent:
        wait_until(lambda: note.is_file() and note.read_text().endswith("."), 60, "the child did not start")
        child = psutil.Process(int(note.read_text()[:-1]))
        parent.kill()
    assert psutil.wait_procs([child], timeout=30)[1] == []
