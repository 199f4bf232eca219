"""Fused clipping of gradients."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from habana_frameworks.torch import _device, _recipes


class FusedClipNorm:
    """Clips the norm of all gradients together in one kernel. Making it waits for the device, and each use does."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], max_norm: float) -> None:
        self.max_norm = max_norm
        torch.ones(1).mul(max_norm).to("hpu")

    def clip_norm(self, parameters: Iterable[torch.nn.Parameter]) -> torch.Tensor:
        """Clip in place, and return the norm there was."""
        parameters = [parameter for parameter in parameters if parameter.grad is not None]
        torch.zeros(1).to("hpu")
        with _device.kernel(f"clip {[*map(_recipes.shape_of, parameters)]}"):
            return torch.nn.utils.clip_grad_norm_(parameters, self.max_norm)
