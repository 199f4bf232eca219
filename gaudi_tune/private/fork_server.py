"""A process that has imported the modules of workers. Ray's processes are forked from it, so that they do not have to
import these again, and share their memory.

It does not import Ray, which reads its variables and seeds its ids when it is imported. If the process holds something
that must not be copied, such as a device or a thread, it ends, and Ray's processes start without it.

This file is also the script that it runs, with the file descriptor of its socket and the modules to import as
arguments. :mod:`.setup_worker` sends it requests.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

COMMON = ("torch", "pandas", "pyarrow.fs", "pydantic")
"""Modules that every worker imports, most of them for Ray Train."""
NOT_COPIED = ("ray", "habana_frameworks")
"""Packages whose state belongs to a single process."""
MAY_DIFFER = ("RAY_", "SPT_NOENV", "PL_DISABLE_FORK", "GAUDI_TUNE_", "HABANA_", "HLS_", "PT_HPU_", "OMP_NUM_THREADS")
"""Prefixes of variables that may have another value in a copy. Nothing that is imported here reads them at import,
except the number of threads, which is the same in the server as in Ray's workers."""
ORIGINAL_ENVIRONMENT = dict(os.environ)
"""The environment variables before any import, since torch sets some."""
MAX_FOLDER = 80
"""Characters of a folder from which on the path of a socket in it may be too long."""
MAX_REQUEST_BYTES = 1 << 20
"""Most bytes of a request."""


class ForkServer:
    """A fork server, which ends together with this process."""

    running: ForkServer | None = None
    """The one of the sweep's own Ray, which this process started last."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it. It imports in the background, and requests wait until it has finished.

        Args:
            modules: Modules to import besides :data:`COMMON`. If one cannot be imported, the workers will say so.
            environment: The environment variables of the workers.
        """
        parent = None if len(tempfile.gettempdir()) < MAX_FOLDER else "/tmp"
        self._folder = tempfile.TemporaryDirectory(prefix="gaudi-tune-", dir=parent, ignore_cleanup_errors=True)
        self.address = str(Path(self._folder.name, "fork"))
        self._environment = dict(environment)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.address)
            listener.listen()
            file = listener.fileno()
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(file), *COMMON, *modules],
                env=environment, pass_fds=[file],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the process that started it
            )  # fmt: skip
        self.pid = self._process.pid

    def request(self, arguments: Sequence[str], files: Sequence[int]) -> None:
        """Request a copy that runs a script, with the environment of the workers. Nothing waits for the answer.

        Args:
            arguments: The script and its arguments.
            files: The standard files of the copy. They are closed if the server refuses.

        Raises:
            OSError: The server has ended.
        """
        request = json.dumps([arguments, self._environment, os.getcwd()]).encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(self.address)
            socket.send_fds(connection, [request], files)

    def end(self) -> None:
        """End the server. Its copies live on."""
        assert self._process.stdin is not None, "it was made with one"
        self._process.stdin.close()
        self._process.terminate()  # closing stdin does not interrupt its imports
        self._process.wait()
        self._folder.cleanup()


def main(file: str, *modules: str) -> None:
    """Serve requests; in a copy, run the command of the request."""
    with socket.socket(fileno=int(file)) as listener:
        address = listener.getsockname()
        preload(modules)
        request = serve(listener) if may_be_copied() else None
        if request is None:  # before the requests that wait are refused: who has asked finds it gone
            shutil.rmtree(Path(address).parent, ignore_errors=True)
    if request is not None:
        run_as(*request)


def preload(modules: Sequence[str]) -> None:
    """Import modules."""
    gc.disable()  # otherwise it would look through a million objects again and again
    for module in modules:
        with suppress(Exception):  # a worker that needs the module will say what is wrong
            importlib.import_module(module)
    gc.freeze()  # if garbage collection touched these objects in a copy, their memory would no longer be shared


def may_be_copied() -> bool:
    """Whether this process holds nothing that belongs to a single process."""
    return threading.active_count() == 1 and not any(name in sys.modules for name in NOT_COPIED)


def serve(listener: socket.socket) -> tuple[list[str], dict[str, str], str, list[int]] | None:
    """Make a copy for each request, until the parent process is gone or closes its end.

    Returns:
        In a copy, the request: arguments, environment variables, current folder and standard files. In the server,
        None.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the copies
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return None
        connection, _ = listener.accept()
        with connection, suppress(OSError, ValueError):  # the sender is gone, or no process can be made
            request, files, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
            try:
                arguments, environment, folder = json.loads(request)
                if fits(environment):
                    if os.fork() == 0:
                        return arguments, environment, folder, [os.dup(file) for file in files]
                    connection.send(b".")
            finally:
                for file in files:
                    os.close(file)


def fits(environment: Mapping[str, str]) -> bool:
    """Whether all that was imported here would be the same in a process with these variables."""
    differing = [
        name
        for name in environment.keys() | ORIGINAL_ENVIRONMENT.keys()
        if environment.get(name) != ORIGINAL_ENVIRONMENT.get(name)
    ]
    return all(name.startswith(MAY_DIFFER) for name in differing)


def run_as(arguments: list[str], environment: Mapping[str, str], folder: str, files: Sequence[int]) -> None:
    """Turn this copy into the requested process, and run its script."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)  # as Ray's processes do
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    os.environ.update(environment)
    for name in ORIGINAL_ENVIRONMENT.keys() - environment.keys():
        del os.environ[name]
    os.chdir(folder)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # otherwise all copies would draw the same; Python reseeds its own
    gc.enable()
    # Triton, which Dynamo imports, would call frozen objects leaks at the end. To unfreeze them takes a second.
    atexit.register(lambda: gc.unfreeze() if "triton" in sys.modules else None)
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).parent))
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    own_folder = str(Path(__file__).resolve().parent)  # as Python writes it, also where a link leads to it
    sys.path[:] = [folder for folder in sys.path if folder != own_folder]  # its modules have the names of libraries
    main(*sys.argv[1:])
