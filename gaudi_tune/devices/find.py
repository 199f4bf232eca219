"""Finds the devices of a machine or cluster, and the one of this process. It imports neither torch nor habana."""

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
"""Every kind of device by its name, in the order of preference."""
DEVICE = "GAUDI_TUNE_DEVICE"
"""Variable with the kind of device that this worker of a sweep trains on."""


@dataclass(frozen=True)
class Devices:
    """The devices of this machine (or cluster) that a sweep may use."""

    type: DeviceType
    nodes: tuple[int, ...]
    """Number of devices on each node that has any; with CPUs, the number of workers that fit on its cores."""
    reason: str
    """Why this kind was chosen, in words for the plan of the sweep."""

    @property
    def count(self) -> int:
        """Number of devices on all nodes."""
        return sum(self.nodes)


def find_devices(requested: str, cluster: Sequence[Mapping[str, float]] | None) -> Devices:
    """Choose the kind of device and count it, without acquiring any.

    Args:
        requested: A kind, or "auto" for the first of :data:`DEVICE_TYPES` that is available.
        cluster: Ray's resources of each node of a running cluster; None to look at this machine.

    Raises:
        ValueError: The requested kind does not exist, or is not available.
    """
    if requested not in ("auto", *DEVICE_TYPES):
        raise ValueError(f"--device {requested}: must be auto, {', '.join(DEVICE_TYPES)}; an NVIDIA GPU is cuda")

    def nodes_of(type_: DeviceType) -> tuple[int, ...]:
        counts = [type_.count_here()] if cluster is None else [int(node.get(type_.resource, 0)) for node in cluster]
        return tuple(count for count in counts if count)

    # Counting GPUs imports torch, so other kinds are only counted if the requested one is missing.
    if requested != "auto" and (nodes := nodes_of(DEVICE_TYPES[requested])):
        return Devices(DEVICE_TYPES[requested], nodes, "asked for")
    nodes_by_kind = {name: nodes_of(type_) for name, type_ in DEVICE_TYPES.items()}
    available = [name for name, nodes in nodes_by_kind.items() if nodes]
    if requested != "auto":
        raise ValueError(
            f"--device {requested}: there is no such device here; there is {', '.join(available) or 'none'}. Take "
            f"--device auto, or start on a machine that has one."
        )
    kind = available[0] if available else CPU.kind
    nodes = nodes_by_kind[kind]
    counts = [f"{sum(nodes)} {'cores' if name == CPU.kind else name}" for name, nodes in nodes_by_kind.items()]
    spread = f" on {len(nodes)} nodes" if len(nodes) > 1 else ""
    return Devices(DEVICE_TYPES[kind], nodes or (1,), f"the best of what is here ({', '.join(counts)}{spread})")


def worker_device() -> torch.device:
    """Return the device of this worker process, which has index 0, since a worker sees only its own.

    In a sweep, :data:`DEVICE` names the kind: a worker that booked CPU cores would still see the HPUs and GPUs of its
    node, because Ray leaves their variables as they are. Outside a sweep, it is the best kind that is available.
    """
    device_type = DEVICE_TYPES.get(os.environ.get(DEVICE, ""))
    if device_type is None:
        device_type = next(type_ for type_ in DEVICE_TYPES.values() if type_.is_available())
    return device_type.torch_device()
