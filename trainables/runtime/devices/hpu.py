"""Training on Intel Gaudis (HPUs). The only module that imports habana, and only inside functions."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trainables.runtime.devices.device import MODULES_OF_A_NODE, Counted, DeviceType, OptimizerName
from trainables.runtime.node_cache import cache_root
from trainables.runtime.versions import version_of

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim import Optimizer

MODULES = "HABANA_VISIBLE_MODULES"
"""The variable of the modules that a process may use, such as 4,5; Ray gives each worker its own."""
LAZY_MODE = "PT_HPU_LAZY_MODE"
"""habana's variable for its mode: 1 collects operations into graphs, 0 does not."""
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
"""torch's variable: unless it is 0, each process that imports torch imports habana, which takes seconds."""
RECIPE_CACHE = "PT_HPU_RECIPE_CACHE_CONFIG"
"""habana's variable for its compiled graphs on disk: folder, whether to empty it at the start, size in MB."""
CACHE_METRICS = "PT_HPU_ENABLE_CACHE_METRICS"
"""habana's variable: "1" counts the recipe cache's hits, in a call of Python for each graph that is launched."""
RECIPE_CACHE_MB = 20_000
"""Disk space of habana's compiled graphs on a node, in MB."""


class Hpu(DeviceType):
    """An HPU: a module of a Gaudi node."""

    def count_here(self) -> int:
        """Ask habana, which acquires none for it.

        Raises:
            ValueError: HABANA_VISIBLE_MODULES is no list of modules.
        """
        if not has_habana():
            return 0
        modules = visible_modules()
        import habana_frameworks.torch.hpu as hpu

        count = hpu.device_count() if hpu.is_available() else 0
        return count if modules is None else min(count, len(modules))

    def is_here(self) -> bool:
        """Whether this process was given a module."""
        return bool(os.environ.get(MODULES)) and has_habana()

    def ray_resources(self, count: int) -> dict[str, float]:
        """Return the HPUs by name: Ray takes one kind of accelerator per node, and has taken a Gaudi for a TPU."""
        return {self.resource: float(count)}

    def node_environment(self) -> dict[str, str]:
        """Return the node's modules, and that nothing imports habana unasked.

        A container that was given devices by index has no list of modules, and Ray would hand out 0, 1, ...
        """
        modules = visible_modules() or present_modules()
        return {AUTOLOAD: "0", **({MODULES: ",".join(map(str, modules))} if modules else {})}

    def worker_environment(self) -> dict[str, str]:
        """Return habana's mode, where it caches compiled graphs, and no TcMalloc."""
        preloaded = re.split(r"[:\s]+", os.environ.get("LD_PRELOAD", ""))
        others = [library for library in preloaded if "tcmalloc" not in library]
        return {
            # Lazy mode was the default up to SynapseAI 1.19 and is no longer developed, so eager is asked for by name.
            LAZY_MODE: os.environ.get(LAZY_MODE, "0"),
            AUTOLOAD: "0",
            # The node's workers share compiled graphs. Never emptied: each first rank would wipe the others' away.
            RECIPE_CACHE: f"{recipe_folder()},false,{RECIPE_CACHE_MB}",  # the workers make it: on their node
            # Intel's images for Ubuntu 22.04 preload it, and Intel's ImageNet page says that its script crashes then.
            **({"LD_PRELOAD": ":".join(others)} if others != preloaded else {}),
        }

    def is_lazy(self) -> bool:
        """Whether habana's variable says so."""
        return os.environ.get(LAZY_MODE) == "1"

    def why_not_together(self, indices: Sequence[int], nodes: int = 1) -> str | None:
        """Return what is wrong with these modules.

        Intel supports 1, 2, 4 and 8 of a node, on the sets 0-1, 2-3, ... and 0-3, 4-7; over several nodes, whole ones.
        """
        width, first = len(indices), min(indices)
        if sorted(indices) != list(range(first, first + width)) or first % width:
            return f"modules {sorted(indices)} are not an aligned set of {width}; something else holds part of the node"
        if nodes > 1 and width < MODULES_OF_A_NODE:
            return f"the trial takes several nodes, and has only modules {sorted(indices)} of one; the others are taken"
        return None

    def monitor(self, indices: Sequence[int]) -> Any:
        """Return a monitor that reads these modules through Intel's pyhlml."""
        from trainables.runtime.devices.device_monitors import HpuMonitor

        return HpuMonitor(indices)

    def is_being_released(self, message: str) -> bool:
        """Whether habana says that it did not get the device, which it has then waited for, up to 60 s.

        Status 8 is that of a device that another process has, 20 of one that this process has, 26 of one that does not
        work (again) yet.
        """
        return "Device acquire failed" in message or bool(re.search(r"synStatus=8\b", message))

    def torch_device(self) -> torch.device:
        """Return the HPU; habana registers it with torch when it is imported."""
        import habana_frameworks.torch.core  # noqa: F401

        return super().torch_device()

    def own_index(self) -> int:
        """Return this worker's module."""
        return int(os.environ["HLS_MODULE_ID"])

    def synchronize(self) -> None:
        """Wait for the queue."""
        import habana_frameworks.torch.hpu as hpu

        hpu.synchronize()

    def memory_in_use(self) -> float:
        """Return the share that tensors hold: without the workspace, which grows to that of the largest graph so far
        and stays."""
        import habana_frameworks.torch.hpu as hpu

        hpu.synchronize()
        stats = hpu.memory_stats()
        summary: dict[str, int] = getattr(hpu.memory, "_extended_memory_summary_dict", dict)()  # nothing public has it
        return float(summary.get("persistent", stats["InUse"]) / stats["Limit"])

    def counted(self) -> Counted:
        """Return what habana's own metrics say; of its recipe cache only where PT_HPU_ENABLE_CACHE_METRICS=1."""
        compiled, fallbacks = _metric("graph_compilation"), _metric("cpu_fallback")
        return Counted(
            compilations=compiled.get("TotalNumber", 0),
            compile_s=float(compiled.get("TotalTime", 0)) / 1e6,  # microseconds, by the bridge's source
            cpu_fallbacks=fallbacks.get("TotalNumber", 0),
            cache_hits=_metric("recipe_cache").get("TotalHit") if os.environ.get(CACHE_METRICS) == "1" else None,
        )

    def peak_memory_gb(self) -> float:
        """Return habana's own peak."""
        import torch

        return float(torch.hpu.max_memory_allocated() / 1e9)  # type: ignore[attr-defined]

    def forget_peak_memory(self) -> None:
        """Have habana count anew."""
        import torch

        torch.hpu.reset_peak_memory_stats()  # type: ignore[attr-defined]

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether torch or habana's own allocator says so."""
        return super().is_out_of_memory(error) or "PT_DEVMEM" in str(error)

    def compile(self, model: nn.Module) -> nn.Module:
        """Compile with habana's backend."""
        import torch

        from trainables.runtime.internals.torch import split_compiled_ddp

        # Dynamo splits a data-parallel model at its communication buckets; habana's backend wants it whole.
        split_compiled_ddp(False)
        # Otherwise the second shape gets a symbolic size, which habana's compiler cannot convert.
        return cast("nn.Module", torch.compile(model, backend="hpu_backend", dynamic=False))

    def compiled_graphs(self) -> Path | None:
        """Return the folder of habana's recipes."""
        folder = os.environ.get(RECIPE_CACHE, "").partition(",")[0]
        return Path(folder) if folder else None

    def mark_step(self) -> None:
        """Run what habana's lazy mode has collected; in eager mode this has no meaning."""
        if self.is_lazy():
            import habana_frameworks.torch.core as htcore

            htcore.mark_step()

    def optimizer_class(self, name: OptimizerName) -> Callable[..., Optimizer]:
        """Return the fused optimizer of that name, with torch's defaults, or torch's, where habana has none."""
        from habana_frameworks.torch.hpex import optimizers as fused

        from trainables.runtime.devices.layerwise import habanas_lars

        # habana's FusedAdamW has eps 1e-6 and weight decay 0.0; the latter is always given here. Its FusedLamb clips
        # all gradients to a norm of 1 unless it is told not to.
        known = {
            "sgd": fused.FusedSGD,
            "adamw": partial(fused.FusedAdamW, eps=1e-8),
            "lars": partial(habanas_lars, fused),
            "lamb": partial(fused.FusedLamb, max_grad_norm=None),
        }
        return known[name] if name in known else super().optimizer_class(name)

    def attention(self) -> Callable[..., torch.Tensor]:
        """Return habana's FusedSDPA, which keeps what the backward pass needs in place of computing it again."""
        from habana_frameworks.torch.hpex.kernels import FusedSDPA

        def attend(*inputs: Any) -> torch.Tensor:
            softmax, again = "None", False  # both habana's defaults; asking it for the second would end a graph
            return cast("torch.Tensor", FusedSDPA.apply(*inputs, softmax, again))

        return attend

    def clip_gradients(self, parameters: Iterable[nn.Parameter], max_norm: float) -> None:
        """Clip with habana's fused kernel."""
        from habana_frameworks.torch.hpex.normalization import FusedClipNorm

        parameters = list(parameters)
        FusedClipNorm(parameters, max_norm).clip_norm(parameters)

    def data_parallel_settings(self) -> dict[str, Any]:
        """Return larger buckets: they suit hccl. The size is that of HabanaAI/Model-References for ResNet-50."""
        return {**super().data_parallel_settings(), "bucket_cap_mb": 256}


HPU = Hpu(
    kind="hpu", resource="HPU", backend="hccl", bf16=True, static_shapes=True, compiles=True, fuses_attention=True,
    widths=(1, 2, 4, 8),
)  # fmt: skip


def register_hccl() -> None:
    """Make habana's backend known to torch.distributed, for processes that Ray Train does not set up."""
    import habana_frameworks.torch.distributed.hccl  # noqa: F401


def name_own_module() -> None:
    """Set the variable that says which module is this worker's, before anything uses it; child processes inherit it.

    Without it, the import of habana in a child asserts, for Ray shows each worker only its own module.
    """
    modules = os.environ.get(MODULES, "")
    if modules and "," not in modules:
        os.environ["HLS_MODULE_ID"] = modules


def visible_modules() -> list[int] | None:
    """Return the modules that HABANA_VISIBLE_MODULES names, in order; None if it is not set.

    Raises:
        ValueError: It names something else. habana would raise where it needs them, in each worker.
    """
    named = os.environ.get(MODULES)
    if named is None:
        return None
    modules = named.split(",")
    if not all(module.strip().isdecimal() for module in modules) or len(set(modules)) < len(modules):
        raise ValueError(
            f"{MODULES} must be numbers of modules, such as 0,1,2,3, but got {named!r}; unset it for all of the node"
        )
    return sorted(int(module) for module in modules)


def present_modules() -> list[int]:
    """Return the modules that hl-smi sees here, in order; empty if it gives no answer."""
    return sorted(int(module) for (module,) in hl_smi("module_id") if module.isdecimal())


def recipe_folder() -> Path:
    """Return where compiled graphs are kept: another release or chip compiles others."""
    release = version_of("habana-torch-plugin") or "unknown"
    return cache_root() / "recipes" / f"{release}-{_chip()}-bf16"


def make_recipe_folder() -> None:
    """Make the folder for compiled graphs on this worker's node; the driver, which chose it, may be on another."""
    if folder := HPU.compiled_graphs():
        folder.mkdir(parents=True, exist_ok=True)


def has_habana() -> bool:
    """Whether Intel's habana_frameworks is installed, found without importing it."""
    return importlib.util.find_spec("habana_frameworks") is not None


def hl_smi(*queries: str) -> list[list[str]]:
    """Return hl-smi's answers, a list for each device, without units (memory is in MiB); empty if it is not installed.

    Acquires no device. Intel's guide to hl-smi names the queries, for example "index", "module_id", "memory.used".
    """
    command = ["hl-smi", "-Q", ",".join(queries), "-f", "csv,noheader"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [[answer.split() for answer in line.split(",")] for line in printed.splitlines()]
    return [[answer[0] for answer in line] for line in lines if len(line) == len(queries) and all(line)]


def _metric(name: str) -> dict[str, Any]:
    """Return what habana has counted in this process; empty for a metric that this release does not have."""
    from habana_frameworks.torch.hpu.metrics import metric_global

    metric = metric_global(name)
    return {} if metric is None else dict(metric.stats())


@cache
def _chip() -> str:
    """Return the chip's name as hl-smi has it; asking torch would acquire a device."""
    answers = hl_smi("name")
    return answers[0][0] if answers else "unknown"
