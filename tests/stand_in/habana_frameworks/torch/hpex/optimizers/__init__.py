"""Fused optimizers, with habana's defaults where they are not torch's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from habana_frameworks.torch import _recipes

BAKED = ("weight_decay", "dampening", "nesterov", "betas", "eps")
"""Constants in the kernels' graphs; learning rate and momentum are tensors to them."""


def _collect(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.device.type != "hpu":
                raise RuntimeError(f"{type(optimizer).__name__} is a kernel of HPUs, and got a parameter on the CPU")
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
        moments_dtype: torch.dtype | tuple[torch.dtype, torch.dtype] | None = None,
    ) -> None:
        if not bias_correction or moments_dtype is not None:
            raise NotImplementedError("the stand-in has neither bias_correction=False nor moments_dtype")
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def step(self, closure: Any = None) -> Any:
        _collect(self)
        return super().step(closure)


class FusedLars(torch.optim.Optimizer):
    """Turns gradients into LARS's steps, learning rate included, and hands them to an optimizer that only adds them."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, skip_mask: Sequence[int], eeta: float = 0.001, eps: float = 1e-8
    ) -> None:
        """Take the optimizer, and for each of its parameters 1 where LARS adapts its step, else 0."""
        super().__init__(optimizer.param_groups, {**optimizer.defaults, "eeta": eeta, "eps": eps})
        self.optim, self.skip_mask, self.eeta, self.eps = optimizer, skip_mask, eeta, eps

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        _collect(self.optim)
        decays = [group.get("weight_decay", 0.0) for group in self.optim.param_groups]
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = 0.0  # it is in the step already
            for parameter, adapts in zip(group["params"], self.skip_mask, strict=False):
                if parameter.grad is not None and adapts:
                    weight, gradient = parameter.norm(), parameter.grad.norm()
                    ratio = self.eeta * weight / (gradient + decay * weight + self.eps)
                    parameter.grad.add_(parameter, alpha=decay).mul_(torch.where(weight * gradient > 0, ratio, 1.0))
                if parameter.grad is not None:
                    parameter.grad.mul_(group["lr"])
        self.optim.step()
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = decay


class FusedLamb(torch.optim.Optimizer):
    """AdamW whose steps are scaled by each layer's ratio of weight to step (LAMB)."""

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        max_grad_norm: float | None = 1.0,
    ) -> None:
        defaults = {"lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps}
        super().__init__(params, {**defaults, "weight_decay": weight_decay, "max_grad_norm": max_grad_norm})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        _collect(self)
        for group in self.param_groups:
            trained = [parameter for parameter in group["params"] if parameter.grad is not None]
            if group["max_grad_norm"] is not None:
                torch.nn.utils.clip_grad_norm_(trained, group["max_grad_norm"])
            group["step"] = group.get("step", 0) + 1
            correct = [1 - beta ** group["step"] if group["bias_correction"] else 1.0 for beta in group["betas"]]
            for parameter in trained:
                state = self.state[parameter]
                first = state.setdefault("exp_avg", torch.zeros_like(parameter))
                second = state.setdefault("exp_avg_sq", torch.zeros_like(parameter))
                first.lerp_(parameter.grad, 1 - group["betas"][0])
                second.lerp_(parameter.grad.square(), 1 - group["betas"][1])
                step = (first / correct[0]) / ((second / correct[1]).sqrt() + group["eps"])
                step.add_(parameter, alpha=group["weight_decay"])
                weight, size = parameter.norm(), step.norm()
                parameter.sub_(step * torch.where(weight * size > 0, weight / size, 1.0) * group["lr"])
