"""Attention with the device's own kernel, for networks of transformers."""

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

FUSED_ATTENTION = "gaudi-tune-fused"
"""The name under which it is registered in transformers."""


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(TrainingConfig):
    """The setting of networks with attention."""

    fused_attention: bool | Literal["auto"] = "auto"
    """Whether to use the attention kernel of the device's software, habana's FusedSDPA, in place of torch's
    scaled_dot_product_attention. auto: on an HPU."""

    def graph(self, workers: int) -> dict[str, Any]:
        """Return what the graphs of the model depend on."""
        return super().graph(workers) | {"fused_attention": self.fused_attention}

    def check_on(self, device: DeviceType) -> None:
        """Check that a device supports what the configuration requires.

        Raises:
            ValueError: The device does not support it.
        """
        super().check_on(device)
        if self.fused_attention is True and not device.fuses_attention:
            raise ValueError(
                f"--set fused_attention=true: an HPU has this kernel, {device.kind} does not; leave it out"
            )


def choose_attention(model: PreTrainedModel, config: AttentionConfig) -> None:
    """Make a network use the attention kernel of this worker's device, if there is one and the configuration allows
    it."""
    device = DEVICE_TYPES[worker_device().type]
    config.check_on(device)
    if config.fused_attention and device.fuses_attention:
        _register(device)
        model.set_attn_implementation(FUSED_ATTENTION)


@lru_cache
def _register(device: DeviceType) -> None:
    """Register the kernel in transformers. This happens once, since another function would be another graph."""
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
        **options: Any,
    ) -> tuple[torch.Tensor, None]:
        """Compute attention of tensors of shape (samples, heads, tokens, size), with the arguments of transformers."""
        causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
        if attention_mask is not None and attention_mask.dtype == torch.bool:
            lowest = torch.finfo(query.dtype).min
            attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(~attention_mask, lowest)
        attended = kernel(query, key, value, attention_mask, dropout, causal and attention_mask is None, scaling)
        return attended.transpose(1, 2).contiguous(), None

    AttentionInterface.register(FUSED_ATTENTION, attend)
    AttentionMaskInterface.register(FUSED_ATTENTION, AttentionMaskInterface()["sdpa"])
