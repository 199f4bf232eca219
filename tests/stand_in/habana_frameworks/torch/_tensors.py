"""Tensors of the device "hpu", the compiler and lazy mode."""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from habana_frameworks.torch import _device, _hardware, _recipes

TEXT_BYTES = 1000
"""Room for an error, as in the source."""


def _foreach_devices() -> list[str]:
    return ["cuda", "xpu", "mtia"]


def _no_device() -> None:
    """torch's list of devices has no "hpu"; to DDP, for example, an HPU has no current index."""


def install(hpu: ModuleType) -> None:
    """Make "hpu" a device of torch, once."""
    if hasattr(torch, "hpu"):
        return
    torch.utils.rename_privateuse1_backend("hpu")
    torch._register_device_module("hpu", hpu)
    torch.utils.generate_methods_for_privateuse1_backend()
    _device.start(_acquire)
    # Intel's device is "hpu" itself, and not the one that torch reserves for others, to which foreach is open.
    for module in ("torch.utils._foreach_utils", "torch.optim.optimizer"):
        importlib.import_module(module).__dict__["_get_foreach_kernels_supported_devices"] = _foreach_devices
    torch._utils._get_available_device_type = _no_device
    if _device.LAZY:
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
        _device.library().finish()


def _collected(loss: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(loss)
    def wrapper(*args: Any, **constants: Any) -> Any:
        _recipes.collect(f"{loss.__name__} {constants}")
        return loss(*args, **constants)

    return wrapper


def compiled(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Return what runs a graph: the backend "hpu_backend", which torch finds by its entry point.

    As with habana's, AOTAutograd takes the graph apart: a forward and a backward graph of functions that change none
    of their inputs, and one more for evaluation.
    """
    from torch._dynamo.backends.common import aot_autograd

    if any(isinstance(size, torch.SymInt) for size in inputs):
        raise TypeError("Cannot convert symbols to int")
    compile_parts = aot_autograd(
        fw_compiler=functools.partial(_recipe, "forward"),
        bw_compiler=functools.partial(_recipe, "backward"),
        inference_compiler=functools.partial(_recipe, "inference"),
    )
    return compile_parts(graph, inputs)


def _recipe(part: str, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Return what runs a part of a graph that AOTAutograd has made."""
    from torch._functorch._aot_autograd.utils import make_boxed_func

    described = "\n".join([part, graph.code, *map(_recipes.shape_of, inputs)])
    # A Gaudi's graph has no strides, and torch traces attention with others than its parts have here.
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default
    graph.recompile()

    def launch(*values: Any) -> Any:
        _recipes.run(described, part)  # habana compiles when a graph first runs
        with _device.graph():
            return graph.forward(*values)

    return make_boxed_func(launch)
