"""Fused optimizers, with habana's defaults where they are not torch's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from habana_frameworks.torch import _device, _recipes

BAKED = ("weight_decay", "eeta", "skip_mask", "dampening", "nesterov", "betas", "eps")
"""Constants in the kernels' graphs; learning rate and momentum are tensors to them."""


@contextmanager
def _kernel(optimizer: torch.optim.Optimizer, baked: tuple[str, ...] = BAKED) -> Iterator[None]:
    """Run the step that is inside as one kernel."""
    described = type(optimizer).__name__
    for group in optimizer.param_groups:
        assert all(parameter.device.type == "hpu" for parameter in group["params"]), "a kernel of HPUs got the CPU's"
        constants = {name: group[name] for name in baked if name in group}
        described += f" {constants} {[*map(_recipes.shape_of, group['params'])]}"
    _recipes.collect(described)
    with _device.kernel(described):
        yield


def _copy_number(value: float, *, blocks: bool = False) -> None:
    """Copy a number that is an input of a kernel to the device, as the real one does in each step."""
    torch.tensor([value], dtype=torch.float).to("hpu", non_blocking=not blocks)


def _refuse_empty_groups(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        if all(parameter.grad is None for parameter in group["params"]):
            raise RuntimeError("can not process empty weight vector")


class FusedSGD(torch.optim.SGD):
    """SGD in one kernel. The real one waits for the device where it copies the momentum, in each step and group."""

    def step(self, closure: Any = None) -> Any:
        with _kernel(self):
            _refuse_empty_groups(self)
            for group in self.param_groups:
                _copy_number(group["lr"])
                if group["momentum"]:
                    _copy_number(group["momentum"], blocks=True)
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
        with _kernel(self, ("betas", "eps")):
            for group in self.param_groups:
                _copy_number(group["lr"])  # with the correction of the bias
                _copy_number(1 - group["weight_decay"] * group["lr"])
            return super().step(closure)


class FusedResourceApplyMomentum(torch.optim.Optimizer):
    """Momentum of gradients that have their learning rate in them. As in the real one, nobody reads ``weight_decay``
    and ``nesterov``, and the first step of a parameter without a buffer adds the gradient."""

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        momentum: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        with _kernel(self, ("momentum",)):
            for group in self.param_groups:
                for weight in group["params"]:
                    self._step(weight, group["momentum"])

    def _step(self, weight: torch.nn.Parameter, momentum: float) -> None:
        if weight.grad is None:
            return
        state = self.state[weight]
        if "momentum_buffer" in state:
            state["momentum_buffer"].mul_(momentum).sub_(weight.grad)
        else:
            state["momentum_buffer"] = weight.grad.clone()
        weight.add_(state["momentum_buffer"])


class FusedLars(torch.optim.Optimizer):
    """Scales gradients for the optimizer that it wraps, whose groups it shares until a state is loaded. The mask begins
    anew in each group, as the real one's does."""

    def __init__(self, optimizer: Any, skip_mask: list[int], eeta: float = 0.001, eps: float = 1e-8) -> None:
        self.optim, self.skip_mask, self.eeta, self.eps = optimizer, skip_mask, eeta, eps
        super().__init__(
            optimizer.param_groups, {**optimizer.defaults, "eeta": eeta, "eps": eps, "skip_mask": skip_mask}
        )
        self.state = optimizer.state

    def zero_grad(self, set_to_none: bool = False) -> None:
        self.optim.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        with _kernel(self):
            for group in self.optim.param_groups:
                for weight, adapts in zip(group["params"], self.skip_mask, strict=False):
                    self._scale(weight, adapts, group["weight_decay"], group["lr"])
        self.optim.step()

    def _scale(self, weight: torch.nn.Parameter, adapts: int, decay: float, lr: float) -> None:
        if weight.grad is None:
            return
        if adapts:
            size, slope = weight.norm(), weight.grad.norm()
            ratio = self.eeta * size / (slope + decay * size + self.eps) if size > 0 and slope > 0 else 1.0
            weight.grad.add_(weight, alpha=decay).mul_(ratio)
        weight.grad.mul_(lr)
