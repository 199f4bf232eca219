"""Dropout whose probability is an input of a compiled graph. As a number it would be a constant of the graph, so that
each value would compile another one."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override


class TensorDropout(nn.Dropout):
    """Dropout with its probability in a tensor, from above 0 to below 1. It draws other masks than torch's own."""

    p: torch.Tensor  # type: ignore[assignment]

    def __init__(self, p: float) -> None:
        """Put the probability into a tensor, which moves with the model and is not part of its state."""
        super().__init__(p)
        del self.p
        self.register_buffer("p", torch.tensor(p), persistent=False)

    @override
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Drop values in training."""
        return drop(input, self.p) if self.training else input


def drop(values: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Return the values, of which a share of ``p`` is 0 and the others are larger, so that the mean stays the same."""
    keep_share = (1 - p).to(values.dtype)
    return values * torch.bernoulli(keep_share.expand(values.shape)).div_(keep_share)


def dropout_as_tensors(model: nn.Module) -> None:
    """Replace each ``nn.Dropout`` of a model by a :class:`TensorDropout`, before the model moves to its device.

    Those with a probability of 0 stay as they are: they cost nothing.
    """
    for parent in [*model.modules()]:
        for name, module in parent.named_children():
            if type(module) is nn.Dropout and 0 < module.p < 1:
                setattr(parent, name, TensorDropout(module.p).train(module.training))
