"""Training on CPU cores."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gaudi_tune.devices.device import CPUS_PER_WORKER, DeviceType

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""What ``docker run --cpus`` or a limit of Kubernetes sets: microseconds of CPU in each period, and the period."""


class Cpu(DeviceType):
    """A worker's share of the host's cores. Nobody counts its memory: Ray watches the host's."""

    @property
    def has_numbers(self) -> bool:
        """Cores have none: Ray counts them and does not bind workers to them."""
        return False

    def count_here(self) -> int:
        """Return how many workers fit on the cores that this process may use, and in the time that its container has on
        them."""
        cores = len(os.sched_getaffinity(0))
        with suppress(OSError, ValueError):  # there is no such file, or "max" in it
            quota, period = map(int, QUOTA.read_text().split())
            cores = max(1, min(cores, quota // period))
        return cores // CPUS_PER_WORKER

    def is_here(self) -> bool:
        """Every process has one."""
        return True

    def worker_resources(self) -> dict[str, float]:
        """Return the cores: they are the device."""
        return {"CPU": float(CPUS_PER_WORKER)}

    def ray_cores(self, count: int) -> int:
        """Return the cores of this many workers: they are the device, and no others may be booked."""
        return count * CPUS_PER_WORKER

    def own_index(self) -> None:
        """Cores have no number: Ray counts them and does not bind workers to them."""

    def memory_in_use(self) -> None:
        """Nobody counts it."""

    def peak_memory_gb(self) -> None:
        """Nobody counts it."""

    def forget_peak_memory(self) -> None:
        """Nobody counts it."""


CPU = Cpu(kind="cpu", resource="CPU", backend="gloo", bf16=False)
