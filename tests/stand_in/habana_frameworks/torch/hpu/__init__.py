"""What ``torch.hpu`` is. Only the first two functions, and ``is_initialized``, leave the device alone."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import torch

from habana_frameworks.torch import _hardware
from habana_frameworks.torch.hpu import metrics

__all__ = ["metrics"]
LIMIT_BYTES = int(os.environ.get("HABANA_STAND_IN_MEMORY_GB", "96")) * 2**30
"""Memory of a Gaudi 2."""


def is_available() -> bool:
    return _hardware.MODULES > 0


def device_count() -> int:
    return _hardware.MODULES


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


def memory_stats(device: Any = None) -> dict[str, int]:
    _hardware.acquire()
    in_use = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"Limit": LIMIT_BYTES, "InUse": in_use, "MaxInUse": most}


def memory_allocated(device: Any = None) -> int:
    return memory_stats()["InUse"]


def max_memory_allocated(device: Any = None) -> int:
    return memory_stats()["MaxInUse"]


def reset_peak_memory_stats(device: Any = None) -> None:
    _hardware.acquire()


def get_rng_state(device: int = 0) -> torch.Tensor:
    _hardware.acquire()
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: int = 0) -> None:
    _hardware.acquire()
    torch.set_rng_state(state)
