"""What is asked of a kind of device in a worker, which sees one device, its own, at index 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn
    from torch.optim import Optimizer

OptimizerName: TypeAlias = Literal["sgd", "adamw", "rmsprop", "lars", "lamb"]


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


class InWorker:
    """The worker's half of :class:`~gaudi_tune.devices.device.DeviceType`: plain torch."""

    kind: str
    resource: str
    bf16: bool

    def prepare_worker(self) -> None:
        """Do what must come first in a worker's process, before it uses the device or starts a thread."""

    def torch_device(self) -> torch.device:
        """Return this worker's device."""
        import torch

        return torch.device(self.kind)

    def own_index(self) -> int | None:
        """Return the number of this worker's device on its node; None where it has none, or goes by a UUID in
        CUDA_VISIBLE_DEVICES."""
        import ray  # here, so that a trained model can be loaded without Ray

        (index,) = ray.get_runtime_context().get_accelerator_ids()[self.resource]
        return int(index) if str(index).isdecimal() else None

    def synchronize(self) -> None:
        """Wait until the device has done what it was given; its work is queued otherwise."""
        self._torch().synchronize()

    def memory_in_use(self) -> float | None:
        """Return the share of the device's memory that this process holds, from 0 to 1; None where nobody counts it."""
        return float(self._torch().memory_allocated() / self._torch().get_device_properties(0).total_memory)

    def free_cached_memory(self) -> None:
        """Give back memory that torch keeps for tensors to come, where it does."""
        getattr(self._torch(), "empty_cache", lambda: None)()

    def counted(self) -> Counted | None:
        """Return what the device's software has counted in this process so far; None: it counts nothing."""
        return None

    def peak_memory_gb(self) -> float | None:
        """Return the most memory that tensors of this process had since :meth:`forget_peak_memory`, in 10^9 bytes;
        None where nobody counts it."""
        return float(self._torch().max_memory_allocated() / 1e9)

    def forget_peak_memory(self) -> None:
        """Count the peak from now on."""
        self._torch().reset_peak_memory_stats()

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

    def mark_step(self) -> None:
        """Run the operations collected since the last call, where a device collects them; called after each step."""

    def optimizer_class(self, name: OptimizerName) -> Callable[..., Optimizer]:
        """Return the optimizer of that name, with torch's defaults."""
        from torch.optim import SGD, AdamW, RMSprop

        from gaudi_tune.devices.layerwise import Lamb, Lars

        known = {"sgd": SGD, "adamw": AdamW, "rmsprop": RMSprop, "lars": Lars, "lamb": Lamb}
        return cast("Callable[..., Optimizer]", known[name])

    def attention(self) -> Callable[..., torch.Tensor]:
        """Return attention as one kernel, where there is one: of queries, keys and values, each of shape (samples,
        heads, tokens, size), a mask to add or None, the dropout probability, whether it is causal, and the scale."""
        raise NotImplementedError(f"{self.kind} has no attention kernel")

    def clip_gradients(self, parameters: Iterable[nn.Parameter], max_norm: float) -> None:
        """Scale all gradients down together so that their norm is at most ``max_norm``."""
        import torch

        torch.nn.utils.clip_grad_norm_(parameters, max_norm)

    def data_parallel_settings(self) -> dict[str, Any]:
        """Return the settings of DistributedDataParallel."""
        return {"gradient_as_bucket_view": True, "broadcast_buffers": False}

    def _torch(self) -> Any:
        """Return torch's module of that kind of device."""
        import torch

        return torch.get_device_module(self.kind)
