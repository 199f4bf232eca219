"""Registers the backend hccl, for tensors of HPUs only: gloo sums them, on the host."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from habana_frameworks.torch import _hardware


def initialize_distributed_hpu(
    world_size: int | None = None, rank: int | None = None, local_rank: int | None = None
) -> tuple[int, int, int]:
    """Return how many processes there are and which this is, as given or else as the environment says."""
    for name, value in (("WORLD_SIZE", world_size), ("RANK", rank), ("LOCAL_RANK", local_rank)):
        if value is not None:
            os.environ[name] = str(value)
    return (
        int(os.environ.get("WORLD_SIZE", "1")),
        int(os.environ.get("RANK", "-1")),
        int(os.environ.get("LOCAL_RANK", "-1")),
    )


def _make(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    _hardware.acquire()
    return dist.ProcessGroupGloo(store, rank, size, timeout)


if "hccl" not in dist.Backend.backend_list:
    dist.Backend.register_backend("hccl", _make, devices=["hpu"])
