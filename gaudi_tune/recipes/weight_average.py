"""A moving average of a model's weights."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage:
    """An exponential moving average of a model's weights and running statistics, beginning with its first weights.

    torch's AveragedModel counts updates in a tensor, so that each update waits for the device. This class does not.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Begin with the current weights of ``model``, on its device.

        Args:
            model: The model that is trained, not wrapped.
            decay: Share that the average keeps of itself in each update, from 0 to 1.
        """
        self.model = deepcopy(model).requires_grad_(False)
        self._update = get_ema_multi_avg_fn(decay)
        self._averages, self._values = _floats_of(self.model), _floats_of(model)

    def update(self) -> None:
        """Update the average with the current weights of the model."""
        self._update(self._averages, self._values, 0)  # torch does not use the last argument


def _floats_of(model: nn.Module) -> list[torch.Tensor]:
    return [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()]
