"""LARS, which torch lacks: each layer's step is scaled to the norm of its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer
from typing_extensions import override

LARS_COEFFICIENT = 0.001
"""Share of a layer's weights that a step of LARS at a learning rate of 1 changes (You et al. 2017; habana has the
same)."""


class Lars(Optimizer):
    """LARS (You et al. 2017, algorithm 1): SGD with momentum, whose gradients are scaled to the norm of the weights.

    A group with ``adapts=False``, for norms and biases, takes plain steps.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1.0, momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "adapts": True}
        super().__init__(params, defaults)

    @torch.no_grad()
    @override
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take a step. The training loop passes no closure."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                step, decay = weight.grad, group["weight_decay"]
                if group["adapts"]:
                    size, slope = weight.norm(), step.norm()
                    ratio = LARS_COEFFICIENT * size / (slope + decay * size)
                    step = (step + decay * weight) * torch.where((size > 0) & (slope > 0), ratio, 1.0)
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight)
                # The momentum contains the learning rate, as in the paper and in habana's kernel, unlike torch's SGD.
                state["momentum_buffer"].mul_(group["momentum"]).sub_(step * group["lr"])
                weight.add_(state["momentum_buffer"])


def habanas_lars(
    fused: Any, params: Iterable[Mapping[str, Any]], lr: float, momentum: float, weight_decay: float
) -> Optimizer:
    """Return habana's LARS, which computes the same as :class:`Lars`.

    Args:
        fused: habana's module of optimizers.
        params: Parameter groups as for :class:`Lars`.
        lr: Learning rate.
        momentum: Momentum of the steps.
        weight_decay: L2 penalty of the adapted weights.
    """
    # There is one group, because habana looks up by a parameter's place in its group whether it is adapted.
    masked = [(weight, group.get("adapts", True)) for group in params for weight in group["params"]]
    weights = [weight for weight, _ in masked]
    inner = fused.FusedResourceApplyMomentum(weights, lr=lr, momentum=momentum, weight_decay=weight_decay)
    for weight in weights:
        # Without a buffer, habana's first step adds the gradient instead of subtracting it.
        inner.state[weight]["momentum_buffer"] = torch.zeros_like(weight)

    class FusedLars(fused.FusedLars):
        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            """Load the state into the inner optimizer, too: habana's own keeps the old momentum and learning rate
            there."""
            self.optim.load_state_dict(state_dict)
            self.param_groups, self.state = self.optim.param_groups, self.optim.state

    optimizer: Optimizer = FusedLars(inner, [int(adapts) for _, adapts in masked], eeta=LARS_COEFFICIENT, eps=0.0)
    return optimizer
