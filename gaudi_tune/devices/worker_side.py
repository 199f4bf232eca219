"""The part of a device type that only workers use. A worker sees one device, its own, at index 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn
    from torch.optim import Optimizer

OptimizerName: TypeAlias = Literal["sgd", "adamw", "rmsprop", "lars"]


class Counted(NamedTuple):
    """What a device's software has counted in this process so far."""

    compilations: int = 0
    """Graphs compiled. Graphs that came from a cache are not counted."""
    compile_s: float = 0.0
    """Seconds spent compiling them."""
    cpu_fallbacks: int = 0
    """Operations that ran on the CPU because the device does not have them."""
    cache_hits: int | None = None
    """Graphs that came from a cache in memory or on the node's disk; None if they are not counted."""


class WorkerSide:
    """The worker's half of :class:`~gaudi_tune.devices.device.DeviceType`: plain torch."""

    kind: str
    resource: str
    bf16: bool
    has_numbers: ClassVar[bool]

    def prepare_worker(self) -> None:
        """Do what must come first in a worker's process, before it uses the device or starts a thread."""

    def torch_device(self) -> torch.device:
        """Return this worker's device."""
        import torch

        return torch.device(self.kind)

    def own_index(self) -> int | None:
        """Return the number of this worker's device on its node.

        Returns:
            None if devices have no numbers, or if CUDA_VISIBLE_DEVICES names the device by a UUID.
        """
        import ray  # here, so that a trained model can be loaded without Ray

        if not self.has_numbers:
            return None
        (index,) = ray.get_runtime_context().get_accelerator_ids()[self.resource]
        return int(index) if str(index).isdecimal() else None

    def synchronize(self) -> None:
        """Wait until the device has finished its queued work."""
        self._torch().synchronize()

    def memory_in_use(self) -> float:
        """Return the share of the device's memory that this process holds, from 0 to 1."""
        return float(self._torch().memory_allocated() / self._torch().get_device_properties(0).total_memory)

    def limit_memory(self, trials_per_device: int) -> None:
        """Have this process run out of memory beyond its part of a device that so many trials share, if it can."""

    def free_cached_memory(self) -> None:
        """Release memory that torch keeps for later tensors, if it keeps any."""
        getattr(self._torch(), "empty_cache", lambda: None)()

    def counted(self) -> Counted | None:
        """Return what the device's software has counted in this process so far; None if it counts nothing."""
        return None

    def peak_memory_gb(self) -> float:
        """Return the peak memory of this process's tensors since :meth:`reset_peak_memory`, in 10^9 bytes."""
        return float(self._torch().max_memory_allocated() / 1e9)

    def reset_peak_memory(self) -> None:
        """Measure the peak from now on."""
        self._torch().reset_peak_memory_stats()

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether an error says that the device's memory is full."""
        import torch

        return isinstance(error, torch.OutOfMemoryError)

    def computes_bf16(self) -> bool:
        """Whether this worker's device has bfloat16, and does not emulate it."""
        return True

    def autocast(self, precision: Literal["auto", "bf16", "off"] = "auto") -> AbstractContextManager[None]:
        """Return the context of bfloat16 autocast, or one that does nothing; "auto" follows the device's default."""
        import torch

        if precision == "bf16" or (precision == "auto" and self.bf16 and self.computes_bf16()):
            return torch.autocast(self.kind, dtype=torch.bfloat16)
        return nullcontext()

    def choose_algorithms(self, *, tf32: bool, benchmark: bool) -> None:
        """Choose among algorithms with different last digits, if the device's software has several."""

    def compile(self, model: nn.Module) -> nn.Module:
        """Return the model compiled for the device, separately for each shape.

        What a trial computes must not depend on the shapes of earlier trials in this process.
        """
        import torch

        return cast("nn.Module", torch.compile(model, dynamic=False))

    def compiled_graphs(self) -> Path | None:
        """Return the folder in which the workers of a node share compiled graphs; None if they share none."""
        return None

    def mark_step(self) -> None:
        """Run the operations that were collected since the last call, if the device collects them."""

    def optimizer_class(self, name: OptimizerName) -> Callable[..., Optimizer]:
        """Return the optimizer of that name, with torch's defaults."""
        from torch.optim import SGD, AdamW, RMSprop

        from gaudi_tune.devices.lars import Lars

        optimizers = {"sgd": SGD, "adamw": AdamW, "rmsprop": RMSprop, "lars": Lars}
        return cast("Callable[..., Optimizer]", optimizers[name])

    def attention(self) -> Callable[..., torch.Tensor]:
        """Return a fused attention kernel.

        It takes queries, keys and values, each of shape (samples, heads, tokens, size), a mask to add or None, the
        dropout probability, whether attention is causal, and the scale.

        Raises:
            NotImplementedError: The device has none (:attr:`DeviceType.fuses_attention` is False).
        """
        raise NotImplementedError(f"{self.kind} has no attention kernel")

    def gradient_clipping(self, parameters: Iterable[nn.Parameter], max_norm: float) -> Callable[[], object]:
        """Return a function that scales all gradients by one factor so that their norm is at most ``max_norm``."""
        from torch.nn.utils import clip_grad_norm_

        return partial(clip_grad_norm_, list(parameters), max_norm)

    def data_parallel_settings(self) -> dict[str, Any]:
        """Return the settings of DistributedDataParallel."""
        return {"gradient_as_bucket_view": True, "broadcast_buffers": False}

    def adapt_sharded(self, model: nn.Module) -> None:
        """Adapt a model that torch's FSDP2 has sharded to this kind of device."""

    def _torch(self) -> Any:
        """Return torch's module for this kind of device, such as ``torch.cuda``."""
        import torch

        return torch.get_device_module(self.kind)
