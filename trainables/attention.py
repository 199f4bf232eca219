"""Attention with the device's own kernel, for networks of transformers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import Self

from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.recipes.training_config import TrainingConfig

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

NAMES = {True: "gaudi-tune-fused", False: "gaudi-tune"}
"""The names under which attention with the device's kernel, and with torch's, is registered in transformers."""
OF_OTHER_KERNELS = ("softcap", "s_aux", "position_bias")
"""Arguments of attention in transformers that change its result: of Gemma 2, of GPT-OSS and of T5."""


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(TrainingConfig):
    """Settings of networks with attention. They have no statistics of batches, so any number of workers does."""

    dropout: float
    """Dropout probability."""
    fused_attention: bool | Literal["auto"] = "auto"
    """Whether to use the attention kernel of the device's software, habana's FusedSDPA, in place of torch's
    scaled_dot_product_attention. auto: on an HPU, except where a graph is compiled that drops attention: the
    probability is a constant of the kernel, so that each value would compile another graph."""

    def graph(self, workers: int) -> dict[str, Any]:
        """Return what the graphs of the model depend on."""
        is_constant = self.fused_attention is True
        dropout = {"dropout": self.dropout} if is_constant else {"dropout or none": self.dropout > 0}
        return super().graph(workers) | {"fused_attention": self.fused_attention} | dropout

    def why_not_wider(self, device: DeviceType, workers: int, wider: int) -> str | None:
        """Return None."""
        return None

    def why_not_exact(self, device: DeviceType, workers: int, wider: int) -> str | None:
        """Return a reason if there is dropout, which would be drawn differently."""
        return "each worker draws its own dropout" if self.dropout else super().why_not_exact(device, workers, wider)

    def rules(self) -> dict[str, bool]:
        """Return each rule in words, and whether the values keep it."""
        return super().rules() | {"dropout must be from 0 to below 1": 0 <= self.dropout < 1}

    def for_device(self, device: DeviceType, cores: int = 1) -> Self:
        """Return the configuration with which trials train on this kind of device, on a host with so many cores for
        each worker.

        Raises:
            ValueError: The device does not support what the configuration requires.
        """
        if self.fused_attention is True and not device.fuses_attention:
            raise ValueError(
                f"--set fused_attention=true: an HPU has this kernel, {device.kind} does not; leave it out"
            )
        return super().for_device(device, cores)


def choose_attention(model: PreTrainedModel, config: AttentionConfig) -> None:
    """Make a network use the attention kernel of this worker's device, if there is one and the configuration allows it.

    Where graphs are compiled, the probabilities of dropout become tensors, which are inputs of the graphs.
    """
    device = DEVICE_TYPES[worker_device().type]
    config.for_device(device)  # raises a ValueError if this device cannot do what the configuration insists on
    fused = bool(config.fused_attention) and device.fuses_attention
    compiles = config.mode_on(device).name != "eager"
    if fused or compiles:
        _register(device, fused)
        model.set_attn_implementation(NAMES[fused])
    if compiles and config.fused_attention is not True:
        from gaudi_tune.recipes.tensor_dropout import dropout_as_tensors

        dropout_as_tensors(model)


@lru_cache
def _register(device: DeviceType, fused: bool) -> None:
    """Register attention in transformers. This happens once, since another function would be another graph."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention
    from transformers import AttentionInterface, AttentionMaskInterface

    from gaudi_tune.recipes.tensor_dropout import drop

    def torchs(*inputs: Any) -> torch.Tensor:
        query, key, value, mask, dropout, causal, scale = inputs
        return scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale=scale)

    kernel = device.attention() if fused else torchs

    def attend(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float | torch.Tensor = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, None]:
        """Compute attention of tensors of shape (samples, heads, tokens, size), with the arguments of transformers."""
        if unknown := [name for name in OF_OTHER_KERNELS if options.get(name) is not None]:
            raise ValueError(
                f"the model's attention has {', '.join(unknown)}, which no kernel here computes; take "
                f"--set compile=false fused_attention=false"
            )
        causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
        if key.shape[1] < query.shape[1]:  # several heads share keys and values
            key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for part in (key, value))
        if attention_mask is not None and attention_mask.dtype == torch.bool:
            lowest = torch.finfo(query.dtype).min
            attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(~attention_mask, lowest)
        if isinstance(dropout, torch.Tensor):
            assert not causal or attention_mask is not None, "an encoder attends to all tokens"
            scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
            if attention_mask is not None:
                scores = scores + attention_mask
            shares = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
            attended = drop(shares, dropout) @ value
        else:
            attended = kernel(query, key, value, attention_mask, dropout, causal and attention_mask is None, scaling)
        return attended.transpose(1, 2).contiguous(), None

    AttentionInterface.register(NAMES[fused], attend)
    AttentionMaskInterface.register(NAMES[fused], AttentionMaskInterface()["sdpa"])
