"""Training on GPUs: plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainables.runtime.devices.device import DeviceType


class Cuda(DeviceType):
    """An NVIDIA GPU."""

    def monitor(self, indices: Sequence[int]) -> Any:
        """Return MLflow's monitor of these GPUs."""
        from trainables.runtime.devices.device_monitors import gpu_monitor

        return gpu_monitor(indices)

    def torch_device(self) -> Any:
        """Return the first GPU, with its index, which torch.cuda's functions want."""
        import torch

        return torch.device("cuda", 0)


CUDA = Cuda(kind="cuda", resource="GPU", backend="nccl", pins_memory=True)
