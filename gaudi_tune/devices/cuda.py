"""Training on GPUs: plain torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from gaudi_tune.base.failure import message_of
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.worker_side import OptimizerName

if TYPE_CHECKING:
    from torch.optim import Optimizer

DEV = Path("/dev")
FILES = ("nvidia*", "nvhost*", "dxg", "kfd")
"""Without any of these files in /dev, torch has no GPU. NVIDIA's driver makes the first three on servers, on Jetson and
in WSL; AMD's driver makes the last, and torch calls AMD's GPUs cuda, too."""
MEMORY_IS_FULL = re.compile(
    r"CU(BLAS|DNN)_STATUS_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED|CUDA error: out of memory"
    r"|Cuda failure( \d+)? 'out of memory'|Failed to CUDA calloc"
)
"""What cuBLAS, cuDNN (before 9 and since), CUDA and NCCL say when the memory that they need beside torch's is full."""
PROCESS_BYTES = 750e6
"""GPU memory that CUDA itself may take in a process, besides torch's tensors: 300 to 600 MB, by GPU and version."""


class Cuda(DeviceType):
    """A GPU, of NVIDIA or AMD."""

    @override
    def count_here(self) -> int:
        if not any(any(DEV.glob(file)) for file in FILES):
            return 0  # without importing torch, which takes a second
        return super().count_here()

    @override
    def monitor(self, index: int) -> Any:
        from gaudi_tune.devices.device_monitors import GpuMonitor

        return GpuMonitor(index)

    @override
    def limit_memory(self, trials_per_device: int) -> None:
        """Leave torch an equal part of the memory that the processes of a GPU do not need for themselves.

        Then it depends on a trial alone whether it fits, and not on the trials beside it.
        """
        total = self._torch().get_device_properties(0).total_memory
        own_share = PROCESS_BYTES / total
        part = max(1 / trials_per_device - own_share, 0.5 / trials_per_device)
        self._torch().set_per_process_memory_fraction(part, 0)

    @override
    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether torch, or a library below it, reports that the GPU's memory is full."""
        of_library = isinstance(error, RuntimeError) and MEMORY_IS_FULL.search(message_of(error)) is not None
        return of_library or super().is_out_of_memory(error)

    @override
    def computes_bf16(self) -> bool:
        return bool(self._torch().is_bf16_supported(including_emulation=False))  # no card before Ampere has it

    @override
    def choose_algorithms(self, *, tf32: bool, benchmark: bool) -> None:
        import torch

        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32  # of convolutions, for which torch's own default is True
        torch.backends.cudnn.benchmark = benchmark

    @override
    def optimizer_class(self, name: OptimizerName) -> Callable[..., Optimizer]:
        """Return torch's optimizer of that name, with one kernel a step where it has such."""
        optimizer = super().optimizer_class(name)
        return partial(optimizer, fused=True) if name in ("sgd", "adamw") else optimizer

    @override
    def torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)  # functions of torch.cuda need the index


CUDA = Cuda(kind="cuda", resource="GPU", backend="nccl", channels_last=True, pins_memory=True, forks=False)
