"""Which devices there are, and which of them is this process's. Importing this imports neither torch nor habana."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gaudi_tune.devices.cpu import CPU
from gaudi_tune.devices.cuda import CUDA
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.hpu import HPU

if TYPE_CHECKING:
    import torch

DEVICE_TYPES: dict[str, DeviceType] = {type_.kind: type_ for type_ in (HPU, CUDA, CPU)}
"""Every kind of device by its name, the one to prefer first."""


DEVICE = "GAUDI_TUNE_DEVICE"
"""Variable with the kind of device that this worker of a sweep trains on."""


@dataclass(frozen=True)
class Devices:
    """The devices of this machine (or cluster) that a sweep may use."""

    type: DeviceType
    nodes: tuple[int, ...]
    """Number of devices on each node that has any; for cpu, the number of workers that fit on its cores."""
    reason: str
    """Why this kind was chosen, for the one line that says so."""

    @property
    def count(self) -> int:
        """Number of devices on all nodes."""
        return sum(self.nodes)


def find_devices(requested: str, cluster: Sequence[Mapping[str, float]] | None) -> Devices:
    """Choose the kind of device and count it, without acquiring any.

    Args:
        requested: A kind, or "auto" for the first of :data:`DEVICE_TYPES` that is there.
        cluster: Ray's resources of each node when a running cluster is used; None to look at this machine.

    Raises:
        ValueError: The requested kind is not there, or there is no such kind.
    """
    if requested not in ("auto", *DEVICE_TYPES):
        raise ValueError(f"--device {requested}: must be auto, {', '.join(DEVICE_TYPES)}; an NVIDIA GPU is cuda")

    def nodes_of(type_: DeviceType) -> tuple[int, ...]:
        counts = [type_.count_here()] if cluster is None else [int(node.get(type_.resource, 0)) for node in cluster]
        return tuple(count for count in counts if count)

    # To count GPUs, torch is imported: not if another kind was asked for.
    if requested != "auto" and (nodes := nodes_of(DEVICE_TYPES[requested])):
        return Devices(DEVICE_TYPES[requested], nodes, "asked for")
    having = {name: nodes_of(type_) for name, type_ in DEVICE_TYPES.items()}
    if requested != "auto":
        others = ", ".join(name for name, nodes in having.items() if nodes) or "none"
        raise ValueError(
            f"--device {requested}: there is no such device here; there is {others}. Take --device auto, or start on a "
            f"machine that has one."
        )
    kind = next((name for name, nodes in having.items() if nodes), CPU.kind)
    seen = [f"{sum(nodes)} {'cores' if name == CPU.kind else name}" for name, nodes in having.items()]
    over = f" on {len(having[kind])} nodes" if len(having[kind]) > 1 else ""
    return Devices(DEVICE_TYPES[kind], having[kind] or (1,), f"the best of what is here ({', '.join(seen)}{over})")


def worker_device() -> torch.device:
    """Return the device of this worker process: always index 0, since a worker sees only its own.

    It is what the sweep says; outside a sweep, the best that is here. Ray leaves the variables of a node's HPUs and
    GPUs to workers that booked none, so that those see devices that are not theirs.
    """
    said = DEVICE_TYPES.get(os.environ.get(DEVICE, ""))
    return (said or next(type_ for type_ in DEVICE_TYPES.values() if type_.is_here())).torch_device()
