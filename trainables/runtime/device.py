"""The device a trial trains on: hpu, cuda or cpu. The only module that imports habana, and only inside functions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import nn
from torch.optim import Optimizer

from trainables.runtime.node_cache import cache_root

DeviceKind = Literal["hpu", "cuda", "cpu"]

CPUS_PER_WORKER = 1
"""CPU cores (and torch threads) of one worker; with one thread, sums have one order and results repeat."""

MODULES_OF_A_NODE = 8
OUT_OF_MEMORY = "out of memory on the device"
"""Begins the last line of an error for which a trial's configuration was too large."""
RECIPE_CACHE = "PT_HPU_RECIPE_CACHE_CONFIG"
"""habana's variable for its compiled graphs on disk: folder, whether to empty it at the start, size in MB."""
RECIPE_CACHE_MB = 20_000
"""Disk space of habana's compiled graphs on a node, in MB."""


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

    def worker_resources(self) -> dict[str, float]:
        """Return what one worker books at Ray: one device, and the cores that feed it."""
        cores = {"CPU": float(CPUS_PER_WORKER)}
        return cores if self.kind == "cpu" else {**cores, self.resource: 1.0}

    def worker_environment(self) -> dict[str, str]:
        """Return what a worker's process must have in its environment before it imports torch."""
        return _habana_environment() if self.kind == "hpu" else {}


DEVICE_TYPES: dict[DeviceKind, DeviceType] = {
    "hpu": DeviceType("hpu", resource="HPU", backend="hccl", bf16=True),
    "cuda": DeviceType("cuda", resource="GPU", backend="nccl", bf16=True),
    "cpu": DeviceType("cpu", resource="CPU", backend="gloo", bf16=False),
}


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


def find_devices(
    requested: Literal["auto", "hpu", "cuda", "cpu"], cluster: Sequence[Mapping[str, float]] | None
) -> Devices:
    """Choose the kind of device and count it, without acquiring any.

    Args:
        requested: A kind, or "auto" for the first of hpu, cuda and cpu that is there.
        cluster: Ray's resources of each node when a running cluster is used; None to look at this machine.

    Raises:
        ValueError: The requested kind is not there.
    """
    nodes = [_counts_of(node) for node in cluster] if cluster is not None else [_count_here()]
    having = {kind: tuple(node[kind] for node in nodes if node[kind]) for kind in DEVICE_TYPES}
    if requested == "auto":
        kind: DeviceKind = "hpu" if having["hpu"] else "cuda" if having["cuda"] else "cpu"
        seen = ", ".join(f"{sum(having[k])} {k}" for k in ("hpu", "cuda")) + f", {sum(having['cpu'])} cores"
        over = f" on {len(having[kind])} nodes" if len(having[kind]) > 1 else ""
        return Devices(DEVICE_TYPES[kind], having[kind] or (1,), f"the best of what is here ({seen}{over})")
    if not having[requested]:
        there = ", ".join(kind for kind, counts in having.items() if counts) or "none"
        raise ValueError(
            f"--device {requested}: there is no such device here; there is {there}. Take --device auto, or start on a "
            f"machine that has one."
        )
    return Devices(DEVICE_TYPES[requested], having[requested], "asked for")


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


def wants_static_shapes(device: torch.device) -> bool:
    """Whether each new shape of a batch costs a compilation."""
    return device.type == "hpu"


def mark_step(device: torch.device) -> None:
    """In habana's lazy mode, run what was collected since the last call; in any other mode this has no meaning."""
    if device.type == "hpu" and os.environ.get("PT_HPU_LAZY_MODE") == "1":
        import habana_frameworks.torch.core as htcore

        htcore.mark_step()


def optimizer_class(device: torch.device, name: Literal["sgd", "adamw"]) -> Callable[..., Optimizer]:
    """Return the optimizer of that name: on an HPU the fused one, with torch's defaults in place of habana's."""
    if device.type != "hpu":
        return torch.optim.SGD if name == "sgd" else torch.optim.AdamW
    from habana_frameworks.torch.hpex import optimizers as fused

    # habana's FusedAdamW has eps 1e-6 and weight decay 0.0; the latter is always given here.
    return fused.FusedSGD if name == "sgd" else partial(fused.FusedAdamW, eps=1e-8)


def clip_gradients(device: torch.device, parameters: Iterable[nn.Parameter], max_norm: float) -> None:
    """Shorten all gradients together to ``max_norm``, if they are longer."""
    if device.type != "hpu":
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        return
    from habana_frameworks.torch.hpex.normalization import FusedClipNorm

    parameters = list(parameters)
    FusedClipNorm(parameters, max_norm).clip_norm(parameters)


def data_parallel_settings(device: torch.device) -> dict[str, Any]:
    """Return the settings of DistributedDataParallel for the device."""
    settings: dict[str, Any] = {"gradient_as_bucket_view": True, "broadcast_buffers": False}
    # Large buckets suit hccl; the size is that of HabanaAI/Model-References for ResNet-50.
    return {**settings, "bucket_cap_mb": 230} if device.type == "hpu" else settings


def register_hccl() -> None:
    """Make habana's backend known to torch.distributed, for processes that Ray Train does not set up."""
    import habana_frameworks.torch.distributed.hccl  # noqa: F401


def name_own_module() -> None:
    """Tell habana which module is this worker's, before anything uses it; child processes inherit it.

    Without it, the import of habana in a child asserts, for Ray shows each worker only its own module.
    """
    modules = os.environ.get("HABANA_VISIBLE_MODULES", "")
    if modules and "," not in modules:
        os.environ["HLS_MODULE_ID"] = modules


def make_recipe_folder() -> None:
    """Make the folder for compiled graphs on this worker's node; who chose it may be on another."""
    if folder := os.environ.get(RECIPE_CACHE, "").partition(",")[0]:
        Path(folder).mkdir(parents=True, exist_ok=True)


def own_index(kind: DeviceKind) -> int | None:
    """Return the number that this worker's device has on its node (an HPU's module), None on a CPU."""
    if kind == "hpu":
        return int(os.environ["HLS_MODULE_ID"])
    if kind == "cuda":
        import ray  # here, so that a trained model can be loaded without Ray

        (index,) = ray.get_runtime_context().get_accelerator_ids()["GPU"]
        return int(index)
    return None


def why_not_aligned(modules: Sequence[int]) -> str | None:
    """Return why these modules of a node should not train together, None if they may.

    Intel supports 1, 2, 4 and 8 of a node, on the sets 0-1, 2-3, ... and 0-3, 4-7.
    """
    width, first = len(modules), min(modules)
    if sorted(modules) == list(range(first, first + width)) and first % width == 0:
        return None
    return f"modules {sorted(modules)} are no aligned set of {width}; something else holds a part of the node"


def memory_in_use(device: torch.device) -> float | None:
    """Return the share of the device's memory that this process holds, from 0 to 1; None for a CPU."""
    if device.type == "hpu":
        stats = torch.hpu.memory_stats()  # type: ignore[attr-defined]
        return float(stats["InUse"] / stats["Limit"])
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device) / torch.cuda.get_device_properties(device).total_memory
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device's memory is full."""
    return isinstance(error, torch.OutOfMemoryError) or "PT_DEVMEM" in str(error)


def is_being_released(message: str) -> bool:
    """Whether an error says that a device is still another process's, or being reset after it."""
    return any(sign in message for sign in ("synStatus=20", "EAGAIN", "EBUSY"))


def has_habana() -> bool:
    """Whether Intel's habana_frameworks is installed, found without importing it."""
    return importlib.util.find_spec("habana_frameworks") is not None


def hl_smi(*queries: str) -> list[list[str]]:
    """Return hl-smi's answers, a list for each device, without units (memory is in MiB); none where it is not there.

    Acquires no device. Intel's guide to hl-smi names the queries, for example "index", "module_id", "memory.used".
    """
    command = ["hl-smi", "-Q", ",".join(queries), "-f", "csv,noheader"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [[answer.split() for answer in line.split(",")] for line in printed.splitlines()]
    return [[answer[0] for answer in line] for line in lines if len(line) == len(queries) and all(line)]


def _habana_environment() -> dict[str, str]:
    recipes = cache_root() / "recipes" / f"{_habana_version()}-{_chip()}-bf16"  # the workers make it: on their node
    return {
        # Lazy mode was the default up to SynapseAI 1.19 and is no longer developed, so eager is asked for by name.
        "PT_HPU_LAZY_MODE": "0",
        # Compiled graphs are shared by the node's workers. Never deleted: each first rank would wipe the others' away.
        RECIPE_CACHE: f"{recipes},false,{RECIPE_CACHE_MB}",
    }


def _habana_version() -> str:
    try:
        return importlib.metadata.version("habana-torch-plugin")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@cache
def _chip() -> str:
    """Return the chip's name as hl-smi has it; asking torch would acquire a device."""
    answers = hl_smi("name")
    return answers[0][0] if answers else "unknown"


def _type_of(device: torch.device) -> DeviceType:
    return next(type_ for type_ in DEVICE_TYPES.values() if type_.kind == device.type)


def _count_here() -> dict[DeviceKind, int]:
    hpus = 0
    if has_habana():
        import habana_frameworks.torch.hpu as hpu  # asking for the count does not acquire a device

        hpus = hpu.device_count() if hpu.is_available() else 0
    return {"hpu": hpus, "cuda": torch.cuda.device_count(), "cpu": _usable_cores() // CPUS_PER_WORKER}


def _counts_of(node: Mapping[str, float]) -> dict[DeviceKind, int]:
    return {kind: int(node.get(type_.resource, 0)) for kind, type_ in DEVICE_TYPES.items()}


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
