"""Training on CPU cores."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from gaudi_tune.devices.device import CPUS_PER_WORKER, DeviceType

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The limit that ``docker run --cpus`` or Kubernetes sets: microseconds of CPU in each period, and the period."""


class Cpu(DeviceType):
    """A worker's share of the host's cores. Ray counts them and does not bind workers to them."""

    has_numbers = False
    measures_memory = False

    @override
    def count_here(self) -> int:
        cores = len(os.sched_getaffinity(0))
        with suppress(OSError, ValueError):  # there is no such file, or it says "max"
            quota, period = map(int, QUOTA.read_text().split())
            cores = max(1, min(cores, quota // period))
        return cores // CPUS_PER_WORKER

    @override
    def is_available(self) -> bool:
        return True

    @override
    def worker_resources(self, trials_per_device: int = 1) -> dict[str, float]:
        return {"CPU": CPUS_PER_WORKER / trials_per_device}


CPU = Cpu(kind="cpu", resource="CPU", backend="gloo", bf16=False)
