"""Fused optimizers, with habana's defaults where they are not torch's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from habana_frameworks.torch import _recipes

BAKED = ("weight_decay", "dampening", "nesterov", "betas", "eps")
"""Constants in the kernels' graphs; learning rate and momentum are tensors to them."""


def _collect(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        constants = {name: group[name] for name in BAKED if name in group}
        _recipes.collect(f"{type(optimizer).__name__} {constants} {[*map(_recipes.shape_of, group['params'])]}")


class FusedSGD(torch.optim.SGD):
    """SGD in one kernel."""

    def step(self, closure: Any = None) -> Any:
        _collect(self)
        return super().step(closure)


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

    def step(self, closure: Any = None) -> Any:
        _collect(self)
        return super().step(closure)
