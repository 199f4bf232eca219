"""Tensors of the device "hpu" (``_tensors.cpp``, compiled once), the compiler and lazy mode."""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import functools
import hashlib
import importlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from habana_frameworks.torch import _hardware, _recipes

SOURCE = Path(__file__).with_suffix(".cpp")
TEXT_BYTES = 1000
"""Room for an error, as in the source."""


def _foreach_devices() -> list[str]:
    return ["cuda", "xpu", "mtia"]


def install(hpu: ModuleType) -> None:
    """Make "hpu" a device of torch, once."""
    if hasattr(torch, "hpu"):
        return
    torch.utils.rename_privateuse1_backend("hpu")
    torch._register_device_module("hpu", hpu)
    torch.utils.generate_methods_for_privateuse1_backend()
    _tensors().start(_acquire)
    # Intel's device is "hpu" itself, and not the one that torch reserves for others, to which foreach is open.
    for module in ("torch.utils._foreach_utils", "torch.optim.optimizer"):
        importlib.import_module(module).__dict__["_get_foreach_kernels_supported_devices"] = _foreach_devices
    if _recipes.LAZY:
        torch.nn.modules.module.register_module_forward_pre_hook(_recipes.collect_modules)
        torch.nn.functional.cross_entropy = _collected(torch.nn.functional.cross_entropy)


@ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
def _acquire(why_not: int) -> bool:
    try:
        _hardware.acquire()
    except Exception as error:
        ctypes.memmove(why_not, str(error).encode()[: TEXT_BYTES - 1] + b"\0", min(len(str(error)) + 1, TEXT_BYTES))
        return False
    atexit.register(_finish)  # which comes before the module is released
    return True


def _finish() -> None:
    if _hardware.acquired():  # not in a forked child
        _tensors().finish()


@functools.cache
def _tensors() -> ctypes.CDLL:
    return ctypes.CDLL(str(_library()))


def _library() -> Path:
    """Compile the tensors where nobody has with this torch, which takes 15 s, and return the file."""
    made_of = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    library = SOURCE.parent / "__pycache__" / f"tensors-{made_of}.so"
    library.parent.mkdir(exist_ok=True)
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            root, unfinished = Path(torch.__file__).parent, library.with_suffix(".new")
            command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-shared", "-fPIC", str(SOURCE)]
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


def _collected(loss: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(loss)
    def wrapper(*args: Any, **constants: Any) -> Any:
        _recipes.collect(f"{loss.__name__} {constants}")
        return loss(*args, **constants)

    return wrapper


def compiled(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Return what runs a graph: the backend "hpu_backend", which torch finds by its entry point."""
    if any(isinstance(size, torch.SymInt) for size in inputs):
        raise TypeError("Cannot convert symbols to int")
    described = "\n".join([graph.code, str(torch.is_grad_enabled()), *map(_recipes.shape_of, inputs)])

    def launch(*values: Any) -> Any:
        _recipes.run(described)  # habana compiles when a graph first runs
        return graph.forward(*values)

    return launch
