"""What a kind of device must answer. ``hpu``, ``cuda`` and ``cpu`` do; :mod:`~trainables.runtime.devices.find` names
them.

Nothing here imports torch before it is needed: the driver asks for counts and resources, and ``--help`` for neither.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn
    from torch.optim import Optimizer

CPUS_PER_WORKER = 1
"""CPU cores (and torch threads) of one worker; with one thread, sums have one order and results repeat."""
MODULES_OF_A_NODE = 8
"""HPUs of a Gaudi node."""

OptimizerName: TypeAlias = Literal["sgd", "adamw", "rmsprop", "lars", "lamb"]

OUT_OF_MEMORY = "out of memory on the device"
"""Begins the last line of an error for which a trial's configuration was too large."""


class Counted(NamedTuple):
    """What a device's software has counted in this process so far."""

    compilations: int = 0
    """Graphs compiled, without those that came from a cache."""
    compile_s: float = 0.0
    """Seconds that this took."""
    cpu_fallbacks: int = 0
    """Operations that ran on the CPU, since the device has none like it."""
    cache_hits: int | None = None
    """Graphs that came from a cache, of the process or the node's disk. None: not counted."""


@dataclass(frozen=True)
class DeviceType(ABC):
    """One kind of device. A subclass overrides what differs from plain torch.

    The first group of methods runs in any process and acquires no device. The second runs in a worker, which sees one
    device, its own, at index 0.
    """

    kind: str
    """torch's name for it, and that of ``--device``."""
    resource: str
    """Ray's name for it."""
    backend: str
    """torch.distributed's backend between such devices."""
    bf16: bool
    """Whether training runs forward and loss in bfloat16 autocast by default."""
    static_shapes: bool = False
    """Whether each new shape of a batch costs a compilation."""
    compiles: bool = False
    """Whether models are compiled unless the configuration says otherwise."""
    fuses_attention: bool = False
    """Whether its software has :meth:`attention`."""
    widths: tuple[int, ...] = ()
    """Numbers of devices of one node that may train one trial together, the last a whole node's. Empty: any."""

    # In any process.

    @abstractmethod
    def count_here(self) -> int:
        """Return how many there are on this machine."""

    @abstractmethod
    def is_here(self) -> bool:
        """Whether this process has one to train on; asked of each kind in turn, the best first."""

    def worker_resources(self) -> dict[str, float]:
        """Return what one worker books at Ray: one device, and the cores that feed it."""
        return {"CPU": float(CPUS_PER_WORKER), self.resource: 1.0}

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

    def why_not_together(self, indices: Sequence[int], nodes: int = 1) -> str | None:
        """Return why these devices of one node should not train one trial together, None if they may.

        Args:
            indices: Their numbers on the node.
            nodes: How many nodes the trial has devices on.
        """
        return None

    def monitor(self, indices: Sequence[int]) -> Any | None:
        """Return an MLflow monitor of these devices of the node, None where the host's own says it all.

        Raises:
            ImportError: The library that reads them is not installed.
            Exception: Whatever that library raises where there is no driver.
        """
        return None

    def is_being_released(self, message: str) -> bool:
        """Whether an error says that another process still has the device, or that it is being reset."""
        return False

    # In a worker.

    def torch_device(self) -> torch.device:
        """Return this worker's device."""
        import torch

        return torch.device(self.kind)

    @abstractmethod
    def own_index(self) -> int | None:
        """Return the number of this worker's device on its node, None where devices have none."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has done what it was given; its work is queued otherwise."""

    @abstractmethod
    def memory_in_use(self) -> float | None:
        """Return the share of the device's memory that this process holds, from 0 to 1; None where nobody counts it."""

    def counted(self) -> Counted | None:
        """Return what the device's software has counted in this process so far; None: it counts nothing."""
        return None

    def peak_memory_gb(self) -> float | None:
        """Return the most memory that tensors of this process had since :meth:`forget_peak_memory`, in 10^9 bytes;
        None where nobody counts it."""
        return None

    def forget_peak_memory(self) -> None:  # noqa: B027  (where nobody counts it, there is nothing to forget)
        """Count the peak from now on."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether an error says that the device's memory is full."""
        import torch

        return isinstance(error, torch.OutOfMemoryError)

    def autocast(self, precision: Literal["auto", "bf16", "off"] = "auto") -> AbstractContextManager[None]:
        """Return bfloat16 autocast if asked for ("auto": where it is the default), else a context that does nothing."""
        import torch

        wanted = precision == "bf16" or (precision == "auto" and self.bf16)
        return torch.autocast(self.kind, dtype=torch.bfloat16) if wanted else nullcontext()

    def compile(self, model: nn.Module) -> nn.Module:
        """Return the model compiled for the device, each shape for itself: what a trial computes must not depend on the
        shapes of those before it in this process."""
        import torch

        return cast("nn.Module", torch.compile(model, dynamic=False))

    def compiled_graphs(self) -> Path | None:
        """Return the folder in which the workers of a node share compiled graphs, None if they do not."""
        return None

    def mark_step(self) -> None:  # noqa: B027  (most devices collect nothing)
        """Run the operations collected since the last call, where a device collects them; called after each step."""

    def optimizer_class(self, name: OptimizerName) -> Callable[..., Optimizer]:
        """Return the optimizer of that name, with torch's defaults."""
        from torch.optim import SGD, AdamW, RMSprop

        from trainables.runtime.devices.layerwise import Lamb, Lars

        known = {"sgd": SGD, "adamw": AdamW, "rmsprop": RMSprop, "lars": Lars, "lamb": Lamb}
        return cast("Callable[..., Optimizer]", known[name])

    def attention(self) -> Callable[..., torch.Tensor]:
        """Return attention as one kernel, where there is one: of queries, keys and values, each of shape (samples,
        heads, tokens, size), a mask to add or None, the dropout probability, whether it is causal, and the scale."""
        raise NotImplementedError(f"{self.kind} has no attention of its own")

    def clip_gradients(self, parameters: Iterable[nn.Parameter], max_norm: float) -> None:
        """Scale all gradients down together so that their norm is at most ``max_norm``."""
        import torch

        torch.nn.utils.clip_grad_norm_(parameters, max_norm)

    def data_parallel_settings(self) -> dict[str, Any]:
        """Return the settings of DistributedDataParallel."""
        return {"gradient_as_bucket_view": True, "broadcast_buffers": False}
