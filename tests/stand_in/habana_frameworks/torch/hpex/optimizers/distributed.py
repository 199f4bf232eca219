"""What torch's distributed optimizers take: gradients are given to step()."""

from __future__ import annotations

from typing import Any

import torch

from habana_frameworks.torch.hpex import optimizers


class FusedAdamW:
    """AdamW in one kernel, of the parameters that it is given."""

    def __init__(self, params: list[torch.Tensor], _allow_empty_param_list: bool = False, **settings: Any) -> None:
        self.param_group = {"params": params}
        self._optimizer = optimizers.FusedAdamW([torch.nn.Parameter(tensor) for tensor in params], **settings)

    def step(self, gradients: list[torch.Tensor | None]) -> None:
        for parameter, gradient in zip(self._optimizer.param_groups[0]["params"], gradients, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
