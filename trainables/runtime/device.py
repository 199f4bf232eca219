"""The device a trial trains on: hpu, cuda or cpu. The only module that imports habana, and only inside functions."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, cast

import torch
from torch import nn

DeviceKind = Literal["hpu", "cuda", "cpu"]

CPUS_PER_WORKER = 1
"""CPU cores (and torch threads) of one worker; with one thread, sums have one order and results repeat."""


@dataclass(frozen=True)
class DeviceType:
    """What Ray and torch need to know of one kind of device."""

    kind: DeviceKind
    resource: str
    """Ray's name for it."""
    backend: str
    """torch.distributed's backend between such devices."""
    bf16: bool
    """Whether training runs forward and loss in bfloat16 autocast by default."""
    worker_env: Mapping[str, str] = field(default_factory=dict)
    """Environment of a worker process, set before it imports torch."""

    def worker_resources(self) -> dict[str, float]:
        """Return what one worker books at Ray: one device, and the cores that feed it."""
        cores = {"CPU": float(CPUS_PER_WORKER)}
        return cores if self.kind == "cpu" else {**cores, self.resource: 1.0}


DEVICE_TYPES: dict[DeviceKind, DeviceType] = {
    "hpu": DeviceType(
        "hpu",
        resource="HPU",
        backend="hccl",
        bf16=True,
        # Lazy mode was the default up to SynapseAI 1.19 and is no longer developed, so eager is asked for by name.
        worker_env={"PT_HPU_LAZY_MODE": "0"},
    ),
    "cuda": DeviceType("cuda", resource="GPU", backend="nccl", bf16=True),
    "cpu": DeviceType("cpu", resource="CPU", backend="gloo", bf16=False),
}


@dataclass(frozen=True)
class Devices:
    """The devices of this machine (or cluster) that a sweep may use."""

    type: DeviceType
    count: int
    """Number of devices; for cpu, the number of workers that fit on the cores."""
    reason: str
    """Why this kind was chosen, for the one line that says so."""


def find_devices(requested: Literal["auto", "hpu", "cuda", "cpu"], cluster: Mapping[str, float] | None) -> Devices:
    """Choose the kind of device and count it, without acquiring any.

    Args:
        requested: A kind, or "auto" for the first of hpu, cuda and cpu that is there.
        cluster: Ray's resource totals when a running cluster is used; None to look at this machine.

    Raises:
        ValueError: The requested kind is not there.
    """
    counts = _count_in(cluster) if cluster is not None else _count_here()
    if requested == "auto":
        kind: DeviceKind = "hpu" if counts["hpu"] else "cuda" if counts["cuda"] else "cpu"
        seen = ", ".join(f"{counts[k]} {k}" for k in ("hpu", "cuda")) + f", {counts['cpu']} cores"
        return Devices(DEVICE_TYPES[kind], counts[kind] or 1, f"the best of what is here ({seen})")
    if not counts[requested]:
        there = ", ".join(kind for kind, count in counts.items() if count) or "none"
        raise ValueError(
            f"--device {requested}: there is no such device here; there is {there}. Take --device auto, or start on a "
            f"machine that has one."
        )
    return Devices(DEVICE_TYPES[requested], counts[requested], "asked for")


def worker_device() -> torch.device:
    """Return the device of this worker process: always index 0, since a worker sees only its own."""
    kind = _kind_of_this_process()
    return torch.device("cuda", 0) if kind == "cuda" else torch.device(kind)


def autocast(device: torch.device, precision: Literal["auto", "bf16", "off"] = "auto") -> AbstractContextManager[None]:
    """Return bfloat16 autocast if asked for ("auto": where training has it by default), else a context of nothing."""
    wanted = precision == "bf16" or (precision == "auto" and _type_of(device).bf16)
    return torch.autocast(device.type, dtype=torch.bfloat16) if wanted else nullcontext()


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given; its work is queued otherwise."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "hpu":
        torch.hpu.synchronize()  # type: ignore[attr-defined]


def compiler(device: torch.device) -> Callable[[nn.Module], nn.Module]:
    """Return what compiles a model for the device."""
    import torch._dynamo

    # Dynamo splits a data-parallel model at its communication buckets; habana's backend wants it whole.
    torch._dynamo.config.optimize_ddp = device.type != "hpu"
    backend = "hpu_backend" if device.type == "hpu" else "inductor"
    return cast("Callable[[nn.Module], nn.Module]", partial(torch.compile, backend=backend))


def has_habana() -> bool:
    """Whether Intel's habana_frameworks is installed, found without importing it."""
    return importlib.util.find_spec("habana_frameworks") is not None


def _type_of(device: torch.device) -> DeviceType:
    return next(type_ for type_ in DEVICE_TYPES.values() if type_.kind == device.type)


def _count_here() -> dict[DeviceKind, int]:
    hpus = 0
    if has_habana():
        import habana_frameworks.torch.hpu as hpu  # asking for the count does not acquire a device

        hpus = hpu.device_count() if hpu.is_available() else 0
    return {"hpu": hpus, "cuda": torch.cuda.device_count(), "cpu": _usable_cores() // CPUS_PER_WORKER}


def _count_in(cluster: Mapping[str, float]) -> dict[DeviceKind, int]:
    return {kind: int(cluster.get(type_.resource, 0)) for kind, type_ in DEVICE_TYPES.items()}


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _kind_of_this_process() -> DeviceKind:
    if os.environ.get("HABANA_VISIBLE_MODULES") and has_habana():
        import habana_frameworks.torch.core  # noqa: F401  (registers the device with torch)

        return "hpu"
    # Ray hides the GPUs from workers that booked none.
    return "cuda" if torch.cuda.is_available() else "cpu"
