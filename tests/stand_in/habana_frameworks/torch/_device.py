"""The library of tensors (``_tensors.cpp``, compiled once), and what it counts and simulates of a device.

All times are 0 unless a variable says otherwise, in seconds: ``HABANA_STAND_IN_COMPILE_S`` for a graph,
``HABANA_STAND_IN_EAGER_COMPILE_S`` for an operation outside of graphs, once for its shapes and constants, and
``HABANA_STAND_IN_OPERATION_S`` for running either. The device is busy that long while the host goes on, until it needs
a number, or a tensor on the host, or synchronises.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

SOURCES = [Path(__file__).with_name(name) for name in ("_tensors.cpp", "_device.hpp")]
COMPILE_S = float(os.environ.get("HABANA_STAND_IN_COMPILE_S", "0"))
"""What the compilation of a graph takes, in seconds."""
LAZY = os.environ.get("PT_HPU_LAZY_MODE") == "1"
MEMORY_BYTES = int(float(os.environ.get("HABANA_STAND_IN_MEMORY_GB", "96")) * 2**30)
"""Memory of a Gaudi 2."""


class Counts(NamedTuple):
    """What the device did since the process began, and the bytes that tensors hold."""

    launches: int
    """Operations and graphs."""
    waits: int
    """How often the host waited for the device."""
    bytes_to_device: int
    bytes_to_host: int
    memory: int
    most_memory: int


class _Settings(ctypes.Structure):
    _fields_ = (
        ("operation_s", ctypes.c_double),
        ("eager_compile_s", ctypes.c_double),
        ("memory_bytes", ctypes.c_int64),
        ("lazy", ctypes.c_bool),
    )


@functools.cache
def library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(_library()))
    loaded.compile.argtypes, loaded.compile.restype = [ctypes.c_double], ctypes.c_double
    loaded.compile_operation.argtypes = [ctypes.c_uint64]
    loaded.count_compilations.restype = ctypes.c_int64
    return loaded


def start(acquire: Any) -> None:
    """Make the device, which calls ``acquire`` at its first use."""

    def number(name: str) -> float:
        return float(os.environ.get(f"HABANA_STAND_IN_{name}", "0"))

    library().start(acquire, _Settings(number("OPERATION_S"), number("EAGER_COMPILE_S"), MEMORY_BYTES, LAZY))


def counts() -> Counts:
    numbers = (ctypes.c_int64 * len(Counts._fields))()
    library().count(numbers)
    return Counts(*numbers)


def compiled() -> tuple[int, float]:
    """Return how many compilations have ended, and the sum of their seconds."""
    seconds = ctypes.c_double()
    return library().count_compilations(ctypes.byref(seconds)), seconds.value


@contextmanager
def graph() -> Iterator[None]:
    """Run what is inside as one operation of the device."""
    library().enter_graph()
    try:
        yield
    finally:
        library().leave_graph()


@contextmanager
def kernel(description: str) -> Iterator[None]:
    """Run what is inside as one operation of Intel's own, which is compiled if there was none of this description."""
    library().compile_operation(int(hashlib.sha256(description.encode()).hexdigest()[:16], 16))
    with graph():
        yield


def _library() -> Path:
    """Compile the tensors where nobody has with this torch, which takes 15 s, and return the file."""
    made_of = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES) + torch.__version__.encode())
    library = SOURCES[0].parent / "__pycache__" / f"tensors-{made_of.hexdigest()[:16]}.so"
    library.parent.mkdir(exist_ok=True)
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            root, unfinished = Path(torch.__file__).parent, library.with_suffix(".new")
            command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-shared", "-fPIC", str(SOURCES[0])]
            command += [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}", f"-L{root / 'lib'}"]
            command += ["-lc10", "-ltorch_cpu", "-o", str(unfinished)]
            try:
                subprocess.run(command, check=True, capture_output=True, text=True)
            except OSError as error:
                raise RuntimeError("the stand-in for HPUs needs a C++ compiler: apt-get install g++") from error
            except subprocess.CalledProcessError as error:
                raise RuntimeError(f"the tensors of the stand-in for HPUs do not compile: {error.stderr}") from error
            unfinished.rename(library)
    return library
