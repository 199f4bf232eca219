"""What ``torch.hpu`` is. Only the first two functions, and ``is_initialized``, leave the device alone."""

from __future__ import annotations

from typing import Any

import torch

from habana_frameworks.torch import _hardware
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


def get_device_name(device: Any = None) -> str:
    _hardware.acquire()
    return "GAUDI2"


def current_device() -> int:
    _hardware.acquire()
    return 0


def set_device(device: Any) -> None:
    assert (torch.device(device).index or 0) == 0, "a process has one HPU, of index 0"
    _hardware.acquire()


def synchronize(device: Any = None) -> None:
    _hardware.acquire()


def get_rng_state(device: int = 0) -> torch.Tensor:
    _hardware.acquire()
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: int = 0) -> None:
    _hardware.acquire()
    torch.set_rng_state(state)


class Stream:
    """A queue of a device. Dynamo looks for it by name."""


class Event:
    """A point in a queue. Dynamo looks for it by name."""


def manual_seed_all(seed: int) -> None:
    torch.manual_seed(seed)
