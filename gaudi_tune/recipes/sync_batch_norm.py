"""Batch normalisation over all workers of a trial.

torch's own SyncBatchNorm accepts tensors on cuda, hpu and xpu, but not on the CPU (torch 2.15). This one uses only
all-reduces, which every backend has, so that it serves hpu, cuda and cpu.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_reduce
from typing_extensions import override

from gaudi_tune.private.torch import change_class


class SyncBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d whose training statistics are computed over the batches of all workers, which must be equally
    large."""

    @override
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalise ``input`` of shape (n, channels, height, width)."""
        if not self.training or dist.get_world_size() == 1:
            return super().forward(input)
        with torch.autocast(input.device.type, enabled=False):  # a Gaudi's autocast would multiply in bfloat16
            values = input.float()
            count = values.numel() / values.shape[1] * dist.get_world_size()
            mean = all_reduce(values.sum(dim=(0, 2, 3))) / count
            centred = values - mean[:, None, None]
            variance = all_reduce(centred.square().sum(dim=(0, 2, 3))) / count
            self._track(mean.detach(), variance.detach() * count / (count - 1))
            scale = self.weight * torch.rsqrt(variance + self.eps)
            return (centred * scale[:, None, None] + self.bias[:, None, None]).to(input.dtype)

    def _track(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        self.num_batches_tracked.add_(1)


def synchronise_batch_norm(model: nn.Module) -> None:
    """Turn every BatchNorm2d of ``model`` into a :class:`SyncBatchNorm2d`; its parameters stay."""
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            change_class(module, SyncBatchNorm2d)
