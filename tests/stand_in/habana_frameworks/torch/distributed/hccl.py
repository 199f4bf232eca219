"""Registers the backend hccl: gloo, for which a process must have its module."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from habana_frameworks.torch import _hardware


def _make(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    _hardware.acquire()
    return dist.ProcessGroupGloo(store, rank, size, timeout)


if "hccl" not in dist.Backend.backend_list:
    dist.Backend.register_backend("hccl", _make, devices=["cpu", "hpu"])
