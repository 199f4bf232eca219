"""The interface of a kind of device, implemented in plain torch for any accelerator that torch knows.

A module for each kind (``hpu``, ``cuda``, ``cpu``) overrides what differs there, and :mod:`~gaudi_tune.devices.find`
lists them. Nothing here imports torch before it is needed: the driver needs only counts and resources, and ``--help``
needs neither.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gaudi_tune.devices.worker_side import WorkerSide

CPUS_PER_WORKER = 1
"""CPU cores (and torch threads) of one worker. With one thread, sums have one order and results repeat."""


@dataclass(frozen=True)
class DeviceType(WorkerSide):
    """One kind of device. Any process may call these methods: they acquire no device."""

    kind: str
    """torch's name for it, also the value of ``--device``."""
    resource: str
    """Ray's name for it."""
    backend: str
    """The backend of torch.distributed for these devices."""
    bf16: bool = True
    """Whether training runs forward and loss in bfloat16 autocast by default."""
    static_shapes: bool = False
    """Whether each new batch shape costs a compilation."""
    compiles: bool = False
    """Whether models are compiled unless the configuration says otherwise."""
    has_lazy_mode: bool = False
    """Whether its software can collect operations into graphs by itself."""
    fuses_attention: bool = False
    """Whether its software has :meth:`attention`."""
    channels_last: bool = False
    """Whether images are faster with the channels as the last dimension in memory."""
    pins_memory: bool = False
    """Whether batches are copied to it from pinned memory."""
    forks: bool = True
    """Whether workers may be forked from a process that has imported torch and used no device."""
    imports: tuple[str, ...] = ()
    """Modules that its software imports in every worker and that take long to import. None of them uses a device."""
    exclusive: bool = False
    """Whether the device belongs to one process at a time, which must exit by itself to release it. If that is killed,
    no process gets the device for a while."""
    widths: tuple[int, ...] = ()
    """How many devices of one node may train one trial together; the last is a whole node. Empty: any number."""

    has_numbers: ClassVar[bool] = True
    """Whether the devices of a node are numbered. CPU cores are not."""
    measures_memory: ClassVar[bool] = True
    """Whether its software tells how much of the device's memory a process has. Ray watches that of the host."""

    @property
    def is_gpu_to_ray(self) -> bool:
        """Whether Ray counts it as a GPU: Ray Train then orders the ranks by device itself."""
        return self.resource == "GPU"

    def count_here(self) -> int:
        """Return how many of these devices this machine has."""
        return int(self._torch().device_count())

    def is_available(self) -> bool:
        """Whether this process has such a device to train on."""
        return bool(self._torch().is_available())

    def worker_resources(self, trials_per_device: int = 1) -> dict[str, float]:
        """Return what one worker books from Ray: its part of one device, and of the cores that feed that."""
        return {"CPU": CPUS_PER_WORKER / trials_per_device, self.resource: 1 / trials_per_device}

    def ray_cores(self, count: int) -> int:
        """Return how many cores Ray may book on a machine with this many devices.

        Each device has a worker that books cores. The others are for what train loops start through Ray, such as a
        remote function. That all share the cores of the machine makes them slow, but nothing waits for ever.
        """
        return count * CPUS_PER_WORKER + (os.cpu_count() or 1)

    def ray_resources(self, count: int) -> dict[str, float]:
        """Return the resources to start Ray with for this many devices; empty if Ray finds them itself."""
        return {}

    def node_environment(self) -> dict[str, str]:
        """Return environment variables that Ray's processes need on a node where it is started."""
        return {}

    def worker_environment(self) -> dict[str, str]:
        """Return environment variables that a worker's process needs before it imports torch."""
        return {}

    def is_lazy(self) -> bool:
        """Whether the device's software collects operations into graphs by itself in this process."""
        return False

    def numbers(self, count: int) -> Sequence[int]:
        """Return the numbers of the ``count`` devices of a node, in order."""
        return range(count)

    def placement_problem(self, indices: Sequence[int], nodes: int = 1) -> str | None:
        """Return why these devices of one node should not train one trial together; None if they may.

        Args:
            indices: The numbers of the trial's devices on the node.
            nodes: How many nodes the trial has devices on.
        """
        return None

    def monitor(self, index: int) -> Any | None:
        """Return a monitor of a device of this node; None if the host's monitor covers it.

        Raises:
            ImportError: The library that reads the device is not installed.
            LookupError: There is no such device.
            Exception: The library raises other errors if there is no driver.
        """
        return None

    def is_being_released(self, message: str) -> bool:
        """Whether an error says that another process still has the device, or that it is being reset."""
        return False
