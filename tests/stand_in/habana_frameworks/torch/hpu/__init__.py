"""What ``torch.hpu`` is. Only the first two functions, and ``is_initialized``, leave the device alone."""

from __future__ import annotations

import os
import types
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from habana_frameworks.torch import _device, _hardware
from habana_frameworks.torch.hpu import memory, metrics
from habana_frameworks.torch.hpu.memory import (
    max_memory_allocated,
    mem_get_info,
    memory_allocated,
    memory_stats,
    reset_peak_memory_stats,
)

__all__ = [
    "max_memory_allocated", "mem_get_info", "memory", "memory_allocated", "memory_stats", "metrics",
    "reset_peak_memory_stats",
]  # fmt: skip


def is_available() -> bool:
    return bool(_hardware.MODULES)


def device_count() -> int:
    return len(_hardware.MODULES)


def is_initialized() -> bool:
    return _hardware.acquired()


def init() -> None:
    _hardware.acquire()


def _lazy_init() -> None:
    """torch calls it before it makes the first tensor in Python; the tensors acquire the device themselves."""


def _is_in_bad_fork() -> bool:
    return False  # the tensors say it, in habana's words


def get_device_name(device: Any = None) -> str:
    _hardware.acquire()
    return os.environ.get("HABANA_STAND_IN_CHIP", "GAUDI2")  # "GAUDI" is the first, which has no float16


def current_device() -> int:
    _hardware.acquire()
    return 0


def set_device(device: Any) -> None:
    _get_device_index(device)
    _hardware.acquire()


def device(device: Any) -> AbstractContextManager[None]:
    """The current device in a block: always the only one."""
    set_device(device)
    return nullcontext()


def _get_device_index(device: Any = None, optional: bool = False) -> int:
    index = device if isinstance(device, int) else 0 if device is None else torch.device(device).index or 0
    assert index == 0, "a process has one HPU, of index 0"
    return 0


def synchronize(device: Any = None) -> None:
    _hardware.acquire()
    _device.library().wait()


def get_rng_state(device: int = 0) -> torch.Tensor:
    _hardware.acquire()
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: int = 0) -> None:
    _hardware.acquire()
    torch.set_rng_state(state)


def manual_seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)


manual_seed_all = manual_seed


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types of autocast. Stricter than a Gaudi 2, which has float16."""
    return [torch.bfloat16, torch.float32]


class Event:
    """A point in a queue. Dynamo looks for it by name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        synchronize()


class Stream(torch.Stream):
    """A queue of a device. Dynamo looks for it by name."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Stream:
        return super().__new__(cls, device="hpu")

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def wait_event(self, event: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        synchronize()


def current_stream(device: Any = None) -> Stream:
    _hardware.acquire()
    return Stream()


default_stream = current_stream


def stream(stream: Stream | None) -> AbstractContextManager[None]:
    return nullcontext()


random = types.SimpleNamespace(get_rng_state=get_rng_state, set_rng_state=set_rng_state)
"""Intel's has a module of this name, which the Trainer reads and writes."""
