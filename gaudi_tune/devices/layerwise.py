"""LARS and LAMB, which torch lacks: each layer's step is scaled to the norm of its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

LARS_COEFFICIENT = 0.001
"""Share of a layer's weights that a step of LARS at a learning rate of 1 changes (You et al. 2017); habana's, too."""
LAMB_EPS = 1e-6
"""As You et al. 2020, and habana."""


class Lars(Optimizer):
    """LARS (You et al. 2017, algorithm 1): momentum of gradients that were brought to the length of the weights.

    A group with ``adapts=False`` takes plain steps, as norms and biases do.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1.0, momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "adapts": True}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take a step; the loop has no closure."""
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
                # The learning rate is inside, as in the paper and in habana's kernel; in torch's SGD it is outside.
                state["momentum_buffer"].mul_(group["momentum"]).sub_(step * group["lr"])
                weight.add_(state["momentum_buffer"])


class Lamb(Optimizer):
    """LAMB (You et al. 2020, algorithm 2): AdamW whose step in each layer has the length of the weights.

    A group without weight decay is not adapted: so habana's kernel, and others, leave out norms and biases.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = LAMB_EPS,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take a step; the loop has no closure."""
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1  # not in the defaults, which win over a checkpoint
            decay, (of_mean, of_square) = group["weight_decay"], group["betas"]
            unbiased_mean, unbiased_square = 1 - of_mean ** group["step"], 1 - of_square ** group["step"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state |= {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
                mean = state["exp_avg"].lerp_(weight.grad, 1 - of_mean)
                square = state["exp_avg_sq"].mul_(of_square).addcmul_(weight.grad, weight.grad, value=1 - of_square)
                step = mean / unbiased_mean / ((square / unbiased_square).sqrt() + group["eps"]) + decay * weight
                if decay:
                    size, length = weight.norm(), step.norm()
                    step *= torch.where((size > 0) & (length > 0), size / length, 1.0)
                weight.sub_(step * group["lr"])


def habanas_lars(
    fused: Any, params: Iterable[Mapping[str, Any]], lr: float, momentum: float, weight_decay: float
) -> Optimizer:
    """Return habana's LARS, which computes what :class:`Lars` does.

    Args:
        fused: habana's module of optimizers.
        params: The groups that :class:`Lars` takes.
        lr: Learning rate.
        momentum: Of the steps.
        weight_decay: L2 penalty of what is adapted.
    """
    # One group: habana looks up what is not adapted by a parameter's place in its group.
    masked = [(weight, group.get("adapts", True)) for group in params for weight in group["params"]]
    weights = [weight for weight, _ in masked]
    inner = fused.FusedResourceApplyMomentum(weights, lr=lr, momentum=momentum, weight_decay=weight_decay)
    for weight in weights:
        # Without a buffer, habana's first step adds the gradient in place of subtracting it.
        inner.state[weight]["momentum_buffer"] = torch.zeros_like(weight)

    class FusedLars(fused.FusedLars):
        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            """Load it where the steps are taken, too: habana's own goes on from the old momentum and learning rate."""
            self.optim.load_state_dict(state_dict)
            self.param_groups, self.state = self.optim.param_groups, self.optim.state

    made: Optimizer = FusedLars(inner, [int(adapts) for _, adapts in masked], eeta=LARS_COEFFICIENT, eps=0.0)
    return made
