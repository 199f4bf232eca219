"""Training on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainables.runtime.devices.device import DeviceType


class Cuda(DeviceType):
    """An NVIDIA GPU."""

    def count_here(self) -> int:
        """Ask torch, which acquires none for it."""
        import torch

        return torch.cuda.device_count()

    def is_here(self) -> bool:
        """Whether torch sees one: Ray hides the GPUs from workers that booked none."""
        import torch

        return torch.cuda.is_available()

    def monitor(self, indices: Sequence[int]) -> Any:
        """Return MLflow's monitor of these GPUs."""
        from trainables.runtime.devices.device_monitors import gpu_monitor

        return gpu_monitor(indices)

    def torch_device(self) -> Any:
        """Return the first GPU, with its index, which torch.cuda's functions want."""
        import torch

        return torch.device("cuda", 0)

    def own_index(self) -> int:
        """Return what Ray gave this worker."""
        import ray  # here, so that a trained model can be loaded without Ray

        (index,) = ray.get_runtime_context().get_accelerator_ids()[self.resource]
        return int(index)

    def synchronize(self) -> None:
        """Wait for all streams."""
        import torch

        torch.cuda.synchronize(0)

    def peak_memory_gb(self) -> float:
        """Return what torch's allocator has counted."""
        import torch

        return torch.cuda.max_memory_allocated() / 1e9

    def forget_peak_memory(self) -> None:
        """Have torch's allocator count anew."""
        import torch

        torch.cuda.reset_peak_memory_stats()

    def memory_in_use(self) -> float:
        """Return the share that torch's allocator has handed out."""
        import torch

        return torch.cuda.memory_allocated(0) / torch.cuda.get_device_properties(0).total_memory


CUDA = Cuda(kind="cuda", resource="GPU", backend="nccl", bf16=True)
