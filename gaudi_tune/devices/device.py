"""What a kind of device must answer. This is plain torch on any accelerator that torch knows; a module for each kind
(``hpu``, ``cuda``, ``cpu``) says what it does otherwise, and :mod:`~gaudi_tune.devices.find` names them.

Nothing here imports torch before it is needed: the driver asks for counts and resources, and ``--help`` for neither.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gaudi_tune.devices.in_worker import InWorker

CPUS_PER_WORKER = 1
"""CPU cores (and torch threads) of one worker; with one thread, sums have one order and results repeat."""
OUT_OF_MEMORY = "out of memory on the device"
"""Begins the last line of an error for which a trial's configuration was too large."""


@dataclass(frozen=True)
class DeviceType(InWorker):
    """One kind of device. What is here is asked in any process, and acquires none."""

    kind: str
    """torch's name for it, and that of ``--device``."""
    resource: str
    """Ray's name for it."""
    backend: str
    """torch.distributed's backend between such devices."""
    bf16: bool = True
    """Whether training runs forward and loss in bfloat16 autocast by default."""
    static_shapes: bool = False
    """Whether each new shape of a batch costs a compilation."""
    compiles: bool = False
    """Whether models are compiled unless the configuration says otherwise."""
    has_lazy_mode: bool = False
    """Whether its software can collect operations into graphs by itself."""
    fuses_attention: bool = False
    """Whether its software has :meth:`attention`."""
    pins_memory: bool = False
    """Whether batches are copied to it from pinned memory."""
    forks: bool = True
    """Whether workers may be forked from a process that has imported torch and used no device."""
    exclusive: bool = False
    """Whether a process that uses it must give it back by ending itself: nobody gets it for a while otherwise."""
    widths: tuple[int, ...] = ()
    """Numbers of devices of one node that may train one trial together, the last a whole node's. Empty: any."""

    @property
    def has_numbers(self) -> bool:
        """Whether the devices of a node are numbered. CPU cores are not."""
        return True

    @property
    def is_gpu_to_ray(self) -> bool:
        """Whether Ray counts it as a GPU: Ray Train then orders the ranks by device itself."""
        return self.resource == "GPU"

    def count_here(self) -> int:
        """Return how many there are on this machine."""
        return int(self._torch().device_count())

    def is_here(self) -> bool:
        """Whether this process has one to train on; asked of each kind in turn, the best first."""
        return bool(self._torch().is_available())

    def worker_resources(self) -> dict[str, float]:
        """Return what one worker books at Ray: one device, and the cores that feed it."""
        return {"CPU": float(CPUS_PER_WORKER), self.resource: 1.0}

    def ray_cores(self, count: int) -> int:
        """Return how many cores Ray is told of on a machine with this many devices.

        Each device has a worker that books cores. On a host with fewer cores workers are slow, but they run.
        """
        return max(count * CPUS_PER_WORKER, os.cpu_count() or 1)

    def ray_resources(self, count: int) -> dict[str, float]:
        """Return what Ray is told of so many devices where it starts; empty where it finds them itself."""
        return {}

    def node_environment(self) -> dict[str, str]:
        """Return what Ray's processes must have in their environment, on a node that it starts on."""
        return {}

    def worker_environment(self) -> dict[str, str]:
        """Return what a worker's process must have in its environment before it imports torch."""
        return {}

    def is_lazy(self) -> bool:
        """Whether this process is told to collect operations into graphs by itself."""
        return False

    def numbers(self, count: int) -> Sequence[int]:
        """Return the numbers of a node's devices, of which there are so many, in order."""
        return range(count)

    def why_not_together(self, indices: Sequence[int], nodes: int = 1) -> str | None:
        """Return why these devices of a node should not train one trial together, which has devices on so many nodes;
        None if they may."""
        return None

    def monitor(self, index: int) -> Any | None:
        """Return a monitor of this device of the node, None where the host's own says it all.

        Raises:
            ImportError: The library that reads it is not installed.
            LookupError: There is no such device.
            Exception: Whatever that library raises where there is no driver.
        """
        return None

    def is_being_released(self, message: str) -> bool:
        """Whether an error says that another process still has the device, or that it is being reset."""
        return False
