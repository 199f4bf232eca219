"""Training on CPU cores."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gaudi_tune.devices.device import CPUS_PER_WORKER, DeviceType

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The limit that ``docker run --cpus`` or Kubernetes sets: microseconds of CPU in each period, and the period."""


class Cpu(DeviceType):
    """A worker's share of the host's cores. Its memory is not measured: Ray watches the host's."""

    @property
    def has_numbers(self) -> bool:
        """Whether cores are numbered: no, Ray counts them and does not bind workers to them."""
        return False

    def count_here(self) -> int:
        """Return how many workers fit on the cores and in the CPU time that this process may use."""
        cores = len(os.sched_getaffinity(0))
        with suppress(OSError, ValueError):  # there is no such file, or it says "max"
            quota, period = map(int, QUOTA.read_text().split())
            cores = max(1, min(cores, quota // period))
        return cores // CPUS_PER_WORKER

    def is_available(self) -> bool:
        """Return True: every process has a CPU."""
        return True

    def worker_resources(self, trials_per_device: int = 1) -> dict[str, float]:
        """Return the cores: they are the device."""
        return {"CPU": CPUS_PER_WORKER / trials_per_device}

    def ray_cores(self, count: int) -> int:
        """Return the cores of this many workers: they are the device, and no others may be booked."""
        return count * CPUS_PER_WORKER

    def own_index(self) -> None:
        """Return None: cores are not numbered."""

    def memory_in_use(self) -> None:
        """Return None: it is not measured."""

    def peak_memory_gb(self) -> None:
        """Return None: it is not measured."""

    def reset_peak_memory(self) -> None:
        """Do nothing: it is not measured."""


CPU = Cpu(kind="cpu", resource="CPU", backend="gloo", bf16=False)
