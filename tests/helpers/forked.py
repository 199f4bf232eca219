"""Python processes that are forked from one that has imported torch: most tests of the stand-in take less than that."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

LARGEST = 2**17
"""Bytes of a request."""


class Forked:
    """Python code in a process, which ends as any of Python's does, but at the latest with a ``with`` block."""

    def __init__(self, code: str, environment: Mapping[str, str]) -> None:
        request = json.dumps({"code": code, "environment": dict(environment), "folder": os.getcwd()}).encode()
        assert len(request) <= LARGEST
        read, write = os.pipe()
        socket.send_fds(_forks(), [request], [write])
        os.close(write)
        self.pid = int(_forks().recv(LARGEST))
        self.stdout = os.fdopen(read)
        """What it prints, errors too."""

    def printed(self) -> str:
        """Wait for its end, and return what it has printed since."""
        with self.stdout:
            printed = self.stdout.read()
        self._wait()
        return printed

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._wait()

    def _wait(self) -> None:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(self.pid).wait()

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self.stdout.close()


@functools.cache
def _forks() -> socket.socket:
    """Start the process that forks, and return the socket that takes requests; when that is closed it ends."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = f"from tests.helpers.forked import next_child; exec(next_child({its.fileno()}))"
    with its:
        subprocess.Popen(
            [sys.executable, "-c", program],
            pass_fds=[its.fileno()],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
    return ours


def next_child(descriptor: int) -> str:
    """Fork a child for each request, and return in that child alone: the code that it is to run."""
    import torch._dynamo  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    with socket.socket(fileno=descriptor) as requests:
        while True:
            request, descriptors, _, _ = socket.recv_fds(requests, LARGEST, maxfds=1)
            if not request:
                sys.exit()
            if (pid := os.fork()) == 0:
                break
            os.close(descriptors[0])
            requests.sendall(str(pid).encode())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for standard in (1, 2):
        os.dup2(descriptors[0], standard)
    os.close(descriptors[0])
    asked = json.loads(request)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    first = os.environ.get("PYTHONPATH", "").split(":")
    sys.path[:] = ["", *first, *(place for place in sys.path[1:] if place not in first)]
    sys.argv[1:] = []
    if action := os.environ.get("PYTHONWARNINGS"):
        warnings.simplefilter(action)  # type: ignore[arg-type]
    code: str = asked["code"]
    return code
