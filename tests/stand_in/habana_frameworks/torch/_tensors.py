"""Tensors of the device "hpu": they stay on the CPU, but whoever makes one must have a module."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.utils._device import _device_constructors

from habana_frameworks.torch import _hardware, _recipes

FACTORIES = (
    "arange", "empty", "empty_like", "eye", "full", "full_like", "linspace", "ones", "ones_like", "rand", "rand_like",
    "randint", "randn", "randn_like", "randperm", "tensor", "as_tensor", "zeros", "zeros_like",
)  # fmt: skip


def install(hpu: ModuleType) -> None:
    """Make "hpu" a device of torch, once."""
    if hasattr(torch, "hpu"):
        return
    _device_constructors()  # `with torch.device(...)` lists what it acts upon at its first use: not the wrappers
    torch.hpu = hpu  # type: ignore[attr-defined]
    for name in FACTORIES:
        setattr(torch, name, _on_the_cpu(getattr(torch, name)))
    for owner in (torch.Tensor, torch.nn.Module):
        owner.to = _on_the_cpu(owner.to)  # type: ignore[method-assign]
    torch.autocast = torch.amp.autocast_mode.autocast = _Autocast  # type: ignore[misc]
    torch._dynamo.register_backend(name="hpu_backend")(_compile)
    if _recipes.LAZY:
        torch.nn.modules.module.register_module_forward_pre_hook(_recipes.collect_modules)
        torch.nn.functional.cross_entropy = _collected(torch.nn.functional.cross_entropy)


def _on_the_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_translated, args), **{name: _translated(value) for name, value in kwargs.items()})

    return wrapper


def _translated(value: Any) -> Any:
    if (isinstance(value, str) and value.split(":")[0] == "hpu") or (
        isinstance(value, torch.device) and value.type == "hpu"
    ):
        _hardware.acquire()
        return torch.device("cpu")
    return value


class _Autocast(torch.autocast):
    """Autocast for "hpu" is that of the CPU: it really computes in bfloat16."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(_translated(device_type).type if device_type == "hpu" else device_type, *args, **kwargs)


def _collected(loss: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(loss)
    def wrapper(*args: Any, **constants: Any) -> Any:
        _recipes.collect(f"{loss.__name__} {constants}")
        return loss(*args, **constants)

    return wrapper


def _compile(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    if any(isinstance(size, torch.SymInt) for size in inputs):
        raise TypeError("Cannot convert symbols to int")
    described = "\n".join([graph.code, str(torch.is_grad_enabled()), *map(_recipes.shape_of, inputs)])

    def launch(*values: Any) -> Any:
        _recipes.run(described)  # habana compiles when a graph first runs
        return graph.forward(*values)

    return launch
