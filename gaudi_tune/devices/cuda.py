"""Training on GPUs: plain torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaudi_tune.devices.device import DeviceType

DEV = Path("/dev")
FILES = ("nvidia*", "nvhost*", "dxg", "kfd")
"""Without any of these in /dev torch has no GPU. NVIDIA's driver makes them on servers, on Jetson and in WSL, and AMD's
makes the last, whose GPUs torch calls cuda, too."""


class Cuda(DeviceType):
    """An NVIDIA GPU."""

    def count_here(self) -> int:
        """Return how many there are on this machine. Importing torch only to hear that there is none takes a second."""
        return super().count_here() if any(any(DEV.glob(file)) for file in FILES) else 0

    def monitor(self, index: int) -> Any:
        """Return MLflow's monitor of this GPU."""
        from gaudi_tune.devices.device_monitors import gpu_monitor

        return gpu_monitor(index)

    def torch_device(self) -> Any:
        """Return the first GPU, with its index, which torch.cuda's functions want."""
        import torch

        return torch.device("cuda", 0)


CUDA = Cuda(kind="cuda", resource="GPU", backend="nccl", pins_memory=True, forks=False)
