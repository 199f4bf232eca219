"""Training on GPUs: plain torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import override

from gaudi_tune.devices.device import DeviceType

DEV = Path("/dev")
FILES = ("nvidia*", "nvhost*", "dxg", "kfd")
"""Without any of these files in /dev, torch has no GPU. NVIDIA's driver makes the first three on servers, on Jetson and
in WSL; AMD's driver makes the last, and torch calls AMD's GPUs cuda, too."""

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
        from gaudi_tune.devices.device_monitors import gpu_monitor

        return gpu_monitor(index)

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
    def torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)  # functions of torch.cuda need the index


CUDA = Cuda(kind="cuda", resource="GPU", backend="nccl", pins_memory=True, forks=False)
