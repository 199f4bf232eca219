"""Fused optimizers, with habana's defaults where they are not torch's."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class FusedSGD(torch.optim.SGD):
    """SGD in one kernel."""


class FusedAdamW(torch.optim.AdamW):
    """AdamW in one kernel."""

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
