"""Memory of a device: that of the process. What it once used is workspace, which the real one keeps as well."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

from habana_frameworks.torch import _hardware

LIMIT_BYTES = int(os.environ.get("HABANA_STAND_IN_MEMORY_GB", "96")) * 2**30
"""Memory of a Gaudi 2."""


def _extended_memory_summary_dict(device: Any = None) -> dict[str, int]:
    _hardware.acquire()
    persistent = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    most = max(persistent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    parts = {"persistent": persistent, "workspace": most - persistent}
    return {"limit": LIMIT_BYTES, "in_use": most, **parts, "max_in_use": most}


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
