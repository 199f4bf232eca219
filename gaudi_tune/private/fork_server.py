"""A process that has imported what workers import. Ray's processes are forked from it, so they need not import that
again, and share its memory.

It does not import Ray, which reads its variables and seeds its ids once, at import. If it holds something that must not
be copied, such as a device or a thread, it ends, and processes start without it.

A script: its arguments are the file descriptor of its socket, and the modules to import. :mod:`.setup_worker` asks it.
"""

from __future__ import annotations

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
"""What every worker imports, nearly all of it for Ray Train."""
NOT_COPIED = ("ray", "habana_frameworks")
"""Packages whose state belongs to one process."""
MAY_DIFFER = ("RAY_", "SPT_NOENV", "PL_DISABLE_FORK", "GAUDI_TUNE_", "HABANA_", "HLS_", "PT_HPU_", "OMP_NUM_THREADS")
"""How the names of variables begin that may have another value in a copy: nothing that is imported here reads them at
import, but for the number of threads. That is the same in the server as Ray makes it in a worker."""
GIVEN = dict(os.environ)
"""The variables before any import: torch sets some."""
REQUEST_MAY_HAVE = 1 << 20
"""Bytes of a request."""


class ForkServer:
    """The server of this process, which ends with it."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it. It imports in the background, and requests wait for that.

        Args:
            modules: What it is to import besides :data:`COMMON`. If one cannot be imported, the workers will say so.
            environment: The variables of the workers.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="gaudi-tune-", ignore_cleanup_errors=True)
        self.address = str(Path(self._folder.name, "fork"))
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

    def end(self) -> None:
        """End it. The copies live on."""
        assert self._process.stdin is not None, "it was made with one"
        self._process.stdin.close()
        self._process.terminate()  # it may be importing
        self._process.wait()
        self._folder.cleanup()


def main(file: str, *modules: str) -> None:
    """Serve, or in a copy run what was asked for."""
    with socket.socket(fileno=int(file)) as listener:
        address = listener.getsockname()
        preload(modules)
        request = serve(listener) if may_be_copied() else None
    if request is None:
        shutil.rmtree(Path(address).parent, ignore_errors=True)
    else:
        become(*request)


def preload(modules: Sequence[str]) -> None:
    """Import modules."""
    gc.disable()  # it would look through a million objects, again and again
    for module in modules:
        with suppress(Exception):  # a worker that needs it will say what is wrong
            importlib.import_module(module)
    gc.freeze()  # nor does it look through them in the copies, which would then have them to themselves


def may_be_copied() -> bool:
    """Whether this process holds nothing that belongs to one process alone."""
    return threading.active_count() == 1 and not any(name in sys.modules for name in NOT_COPIED)


def serve(listener: socket.socket) -> tuple[list[str], dict[str, str], str, list[int]] | None:
    """Make a copy for each request until the process that started this one is gone or closes its end; return in a copy
    what it is to be."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the copies
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return None
        connection, _ = listener.accept()
        with connection, suppress(OSError, ValueError):  # the asker is gone, or there is no room for another process
            text, files, _, _ = socket.recv_fds(connection, REQUEST_MAY_HAVE, 3)
            try:
                arguments, environment, folder = json.loads(text)
                if fits(environment):
                    if os.fork() == 0:
                        return arguments, environment, folder, [os.dup(file) for file in files]
                    connection.send(b".")
            finally:
                for file in files:
                    os.close(file)


def fits(environment: Mapping[str, str]) -> bool:
    """Whether nothing that was imported here would be otherwise in a process of these variables."""
    differ = [name for name in environment.keys() | GIVEN.keys() if environment.get(name) != GIVEN.get(name)]
    return all(name.startswith(MAY_DIFFER) for name in differ)


def become(arguments: list[str], environment: Mapping[str, str], folder: str, files: Sequence[int]) -> None:
    """Be the process that was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)  # as Ray's processes do
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    os.environ.update(environment)
    for name in GIVEN.keys() - environment.keys():
        del os.environ[name]
    os.chdir(folder)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # else all copies would draw the same; Python sees to its own
    gc.enable()
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).parent))
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))  # whose modules have the names of what they look into
    main(*sys.argv[1:])
