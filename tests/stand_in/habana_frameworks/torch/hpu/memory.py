"""Memory of a device: what its tensors hold. What they once held is workspace, which the real one keeps as well."""

from __future__ import annotations

from typing import Any

from habana_frameworks.torch import _device, _hardware


def _extended_memory_summary_dict(device: Any = None) -> dict[str, int]:
    _hardware.acquire()
    persistent, most = _device.counts()[-2:]
    parts = {"persistent": persistent, "workspace": most - persistent}
    return {"limit": _device.MEMORY_BYTES, "in_use": most, **parts, "max_in_use": most}


def memory_stats(device: Any = None) -> dict[str, int]:
    summary = _extended_memory_summary_dict()
    return {"Limit": summary["limit"], "InUse": summary["in_use"], "MaxInUse": summary["max_in_use"]}


def memory_allocated(device: Any = None) -> int:
    return memory_stats()["InUse"]


def max_memory_allocated(device: Any = None) -> int:
    return memory_stats()["MaxInUse"]


def mem_get_info(device: Any = None) -> tuple[int, int]:
    stats = memory_stats()
    return stats["Limit"] - stats["InUse"], stats["Limit"]


def reset_peak_memory_stats(device: Any = None) -> None:
    _hardware.acquire()
