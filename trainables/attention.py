"""Attention with a kernel of the device's own, for the networks of transformers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.training.training_config import TrainingConfig

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

FUSED = "gaudi-tune-fused"
"""What transformers calls it."""


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(TrainingConfig):
    """The setting of networks that attend."""

    fused_attention: bool | Literal["auto"] = "auto"
    """Whether attention is one kernel of the device's software: habana's FusedSDPA. auto: on an HPU. Elsewhere, and
    without it, it is torch's scaled_dot_product_attention."""

    def graph(self, workers: int) -> dict[str, Any]:
        """Return what the graphs of the model depend on."""
        return super().graph(workers) | {"fused_attention": self.fused_attention}

    def check_on(self, device: DeviceType) -> None:
        """See that a device has what the configuration insists on.

        Raises:
            ValueError: It does not.
        """
        super().check_on(device)
        if self.fused_attention is True and not device.fuses_attention:
            raise ValueError(
                f"--set fused_attention=true: an HPU has this kernel, {device.kind} does not; leave it out"
            )


def choose_attention(model: PreTrainedModel, config: AttentionConfig) -> None:
    """Have a network attend with the kernel of this worker's device, if it has one and the configuration wants it."""
    device = DEVICE_TYPES[worker_device().type]
    config.check_on(device)
    if config.fused_attention and device.fuses_attention:
        _register(device)
        model.set_attn_implementation(FUSED)


@lru_cache
def _register(device: DeviceType) -> None:
    """Make the kernel known to transformers: once, since another function would be another graph."""
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface

    kernel = device.attention()

    def attend(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **others: Any,
    ) -> tuple[torch.Tensor, None]:
        """Attend, as transformers asks for it: of shapes (samples, heads, tokens, size)."""
        causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
        if attention_mask is not None and attention_mask.dtype == torch.bool:
            least = torch.finfo(query.dtype).min
            attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(~attention_mask, least)
        attended = kernel(query, key, value, attention_mask, dropout, causal and attention_mask is None, scaling)
        return attended.transpose(1, 2).contiguous(), None

    AttentionInterface.register(FUSED, attend)
    AttentionMaskInterface.register(FUSED, AttentionMaskInterface()["sdpa"])
