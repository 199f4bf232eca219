"""Training on Intel Gaudis (HPUs). No other module imports habana, and this one only inside functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from gaudi_tune.base.failure import message_of
from gaudi_tune.devices import gaudi_node as node
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.worker_side import Counted, OptimizerName

if TYPE_CHECKING:
    import torch


class Hpu(DeviceType):
    """An HPU: a module of a Gaudi node."""

    node_environment = staticmethod(node.environment)
    worker_environment = staticmethod(node.worker_environment)
    prepare_worker = staticmethod(node.prepare_worker)
    compiled_graphs = staticmethod(node.compiled_graphs)
    is_lazy = staticmethod(node.is_lazy)
    placement_problem = staticmethod(node.alignment_problem)
    numbers = staticmethod(node.numbers_of)
    is_being_released = staticmethod(node.is_being_released)

    @override
    def count_here(self) -> int:
        """Return how many HPUs this process may use, as habana counts them without acquiring one.

        Raises:
            ValueError: HABANA_VISIBLE_MODULES is not a list of modules.
        """
        if not node.has_habana():
            return 0
        import habana_frameworks.torch.hpu as hpu

        modules = node.visible_modules()
        count = int(hpu.device_count()) if hpu.is_available() else 0
        return count if modules is None else min(count, len(modules))

    @override
    def is_available(self) -> bool:
        return bool(os.environ.get(node.MODULES)) and node.has_habana()

    @override
    def ray_resources(self, count: int) -> dict[str, float]:
        """Return the HPUs by name: Ray detects one kind of accelerator per node, and has taken a Gaudi for a TPU."""
        return {self.resource: float(count)}

    @override
    def monitor(self, index: int) -> Any:
        from gaudi_tune.devices.device_monitors import HpuMonitor

        return HpuMonitor(index)

    @override
    def torch_device(self) -> torch.device:
        """Return the HPU; habana registers it and hccl with torch when it is imported."""
        import habana_frameworks.torch.core
        import habana_frameworks.torch.distributed.hccl  # noqa: F401

        return super().torch_device()

    @override
    def own_index(self) -> int:
        return int(os.environ[node.OWN_MODULE])

    @override
    def memory_in_use(self) -> float:
        """Return the share that tensors hold, without the workspace, which stays as large as for the largest graph."""
        self.synchronize()
        memory, stats = self._torch().memory, self._torch().memory_stats()
        summary: dict[str, int] = getattr(memory, "_extended_memory_summary_dict", dict)()  # no public API has this
        return float(summary.get("persistent", stats["InUse"]) / stats["Limit"])

    @override
    def counted(self) -> Counted:
        """Return habana's own metrics; those of its recipe cache only if PT_HPU_ENABLE_CACHE_METRICS=1."""
        from habana_frameworks.torch.hpu.metrics import metric_global

        def stats(name: str) -> dict[str, Any]:
            metric = metric_global(name)
            return dict(metric.stats()) if metric else {}  # not every release has every metric

        compiled, hits = stats("graph_compilation"), stats("recipe_cache").get("TotalHit")
        return Counted(
            compilations=compiled.get("TotalNumber", 0),
            compile_s=float(compiled.get("TotalTime", 0)) / 1e6,  # microseconds, according to the bridge's source
            cpu_fallbacks=stats("cpu_fallback").get("TotalNumber", 0),
            cache_hits=hits if os.environ.get(node.CACHE_METRICS) == "1" else None,
        )

    @override
    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether torch or habana's own allocator reports that the device's memory is full."""
        allocator_failed = isinstance(error, RuntimeError) and "MODULE:PT_DEVMEM Allocation failed" in message_of(error)
        return allocator_failed or super().is_out_of_memory(error)  # habana has no type for this error

    @override
    def compile(self, model: torch.nn.Module) -> torch.nn.Module:
        import torch

        from gaudi_tune.private.torch import split_compiled_ddp

        # Dynamo splits a data-parallel model at its communication buckets; habana's backend needs it in one piece.
        split_compiled_ddp(False)
        # Otherwise the second shape gets a symbolic size, which habana's compiler cannot convert.
        return cast("torch.nn.Module", torch.compile(model, backend="hpu_backend", dynamic=False))

    @override
    def mark_step(self) -> None:
        if self.is_lazy():
            import habana_frameworks.torch.core as htcore

            htcore.mark_step()

    @override
    def optimizer_class(self, name: OptimizerName) -> Callable[..., torch.optim.Optimizer]:
        """Return habana's fused optimizer of that name with torch's defaults, or torch's own if habana has none."""
        import torch
        from habana_frameworks.torch.hpex import optimizers as fused

        from gaudi_tune.devices.lars import habanas_lars

        optimizers: dict[str, Callable[..., torch.optim.Optimizer]] = {
            "sgd": fused.FusedSGD,
            "adamw": partial(fused.FusedAdamW, eps=1e-8),  # habana's default is 1e-6; weight decay is always given
            "lars": partial(habanas_lars, fused),
            "rmsprop": partial(torch.optim.RMSprop, foreach=True),  # torch does that by itself on other devices only
        }
        return optimizers[name]

    @override
    def attention(self) -> Callable[..., torch.Tensor]:
        """Return habana's FusedSDPA, which keeps what the backward pass needs instead of computing it again."""
        from habana_frameworks.torch.hpex.kernels import FusedSDPA

        # These are habana's defaults for softmax and recomputation. Querying the second would end a graph.
        return lambda *inputs: FusedSDPA.apply(*inputs, "None", False)

    @override
    def gradient_clipping(self, parameters: Iterable[torch.nn.Parameter], max_norm: float) -> Callable[[], object]:
        """Return a function that clips with habana's fused kernel, made once: making it waits for the device."""
        from habana_frameworks.torch.hpex.normalization import FusedClipNorm

        parameters = list(parameters)
        return partial(FusedClipNorm(parameters, max_norm).clip_norm, parameters)

    @override
    def data_parallel_settings(self) -> dict[str, Any]:
        """Return larger buckets, which suit hccl. HabanaAI/Model-References has this size for ResNet-50."""
        return {**super().data_parallel_settings(), "bucket_cap_mb": 256}

    @override
    def adapt_sharded(self, model: torch.nn.Module) -> None:
        """Have gradients added up, and then divided: hccl has no mean."""
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)


HPU = Hpu(
    kind="hpu", resource="HPU", backend="hccl", static_shapes=True, compiles=True, has_lazy_mode=True,
    fuses_attention=True, exclusive=True, widths=(1, 2, 4, 8),
    imports=("torch._dynamo", "functorch", "torch._functorch.aot_autograd"),
)  # fmt: skip
