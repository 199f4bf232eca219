"""Fused clipping of gradients."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class FusedClipNorm:
    """Clips the norm of all gradients together in one kernel."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], max_norm: float) -> None:
        self.max_norm = max_norm

    def clip_norm(self, parameters: Iterable[torch.nn.Parameter]) -> torch.Tensor:
        """Clip in place, and return the norm there was."""
        return torch.nn.utils.clip_grad_norm_(parameters, self.max_norm)
