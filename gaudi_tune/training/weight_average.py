"""A moving average of a model's weights."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage:
    """An exponential moving average of a model's weights and running statistics, from its first weights on.

    torch's AveragedModel waits for the device in each update, because it counts them in a tensor.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Begin with the weights that ``model`` has, on the device that it is on.

        Args:
            model: As it is trained, not wrapped.
            decay: What the average keeps of itself in each update, from 0 to 1.
        """
        self.model = deepcopy(model).requires_grad_(False)
        self._update = get_ema_multi_avg_fn(decay)
        self._averages, self._values = _floats_of(self.model), _floats_of(model)

    def update(self) -> None:
        """Take in the weights that the model has now."""
        self._update(self._averages, self._values, 0)  # the last argument is not read


def _floats_of(model: nn.Module) -> list[torch.Tensor]:
    return [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()]
