"""The network of :mod:`trainables.vit`: the ViT of transformers, for images of any size that its patches divide."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from transformers import ViTConfig, ViTForImageClassification
from transformers.utils import logging

from gaudi_tune.data.pretrained import HUB, RANDOM, from_pretrained
from trainables.vit_npz import SUFFIX, describe_npz, read_npz

HUB_MODELS = {
    "B/16": "google/vit-base-patch16-224-in21k",
    "B/32": "google/vit-base-patch32-224-in21k",
    "L/16": "google/vit-large-patch16-224-in21k",
    "L/32": "google/vit-large-patch32-224-in21k",
    "H/14": "google/vit-huge-patch14-224-in21k",
}
"""The authors' weights, trained on ImageNet-21k at 224 pixels."""
WIDTHS = {
    "B": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "L": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    "H": {"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16, "intermediate_size": 5120},
    "sample": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128},
}
"""The sizes of Dosovitskiy et al. 2021, table 1, and one for the sample recipe."""
SAMPLE_PATCH = 8
"""Side of the sample recipe's patches in pixels. An image of 32 by 32 has 16 of them."""


class ViTClassifier(nn.Module):
    """A ViT that takes images of any size that its patches divide, and returns logits."""

    def __init__(self, vit: ViTForImageClassification) -> None:
        super().__init__()
        self.vit = vit

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (n, classes) for ``images`` of shape (n, 3, size, size)."""
        interpolate = images.shape[-1] != self.vit.config.image_size
        logits: torch.Tensor = self.vit(pixel_values=images, interpolate_pos_encoding=interpolate).logits
        return logits


def source_of(model: str, size: str) -> str:
    """Return the folder or the name on the hub from which the weights come."""
    return HUB_MODELS.get(size, size) if model == HUB else model


def describe_network(model: str, size: str, image_size: int, dropout: float) -> ViTConfig:
    """Return the configuration of the network in transformers, from its weights or else from its size.

    Args:
        model: See :class:`~trainables.vit.ViTTrialConfig`, also for the other arguments.
        size: Width and patch size of the network.
        image_size: Side of the images, in pixels.
        dropout: Dropout probability of each layer.

    Raises:
        ValueError: The weights do not exist, or belong to another network.
    """
    if model != RANDOM:
        return ViTConfig.from_dict(
            {**_described(model, size), "image_size": image_size, "hidden_dropout_prob": dropout}
        )
    width, _, patch = size.partition("/")
    sides = {"patch_size": int(patch or SAMPLE_PATCH), "image_size": image_size}
    return ViTConfig(**WIDTHS[width], **sides, hidden_dropout_prob=dropout)


def _described(model: str, size: str) -> dict[str, Any]:
    """Return the arguments of the ViTConfig of the network whose weights a trial starts from."""
    if model.endswith(SUFFIX):
        return describe_npz(model)
    description: dict[str, Any]
    description, _ = from_pretrained(ViTConfig.get_config_dict, source_of(model, size))
    kind, channels = description.get("model_type"), description.get("num_channels", 3)
    if kind != "vit" or channels != 3:
        raise ValueError(
            f"--model {model}: a ViT of 3 channels is needed, and this is a {kind} of {channels}; give a "
            f"folder that ViTModel.save_pretrained wrote, or take --model {RANDOM}"
        )
    return description


def build_vit(model: str, size: str, network: ViTConfig, classes: int, *, zero_head: bool = False) -> ViTClassifier:
    """Return a ViT on the CPU, with a new head.

    Args:
        model: See :class:`~trainables.vit.ViTTrialConfig`.
        size: See there.
        network: The result of :func:`describe_network`. Its number of labels is set to ``classes``.
        classes: Number of outputs of the head.
        zero_head: Whether the head begins with zeros.

    Raises:
        ValueError: The weights do not exist, or belong to another network.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    network.num_labels = classes
    if model == RANDOM:
        return _with_head(ViTForImageClassification(network), zero_head)
    base = ViTConfig.from_dict({**network.to_dict(), "image_size": _described(model, size).get("image_size", 224)})
    load = partial(
        ViTForImageClassification.from_pretrained, config=base, ignore_mismatched_sizes=True, output_loading_info=True
    )
    if model.endswith(SUFFIX):
        vit, info = load(None, state_dict=read_npz(model))
    else:
        vit, info = from_pretrained(load, source_of(model, size))
    missing = [str(key) for key in (*info["missing_keys"], *info["mismatched_keys"]) if "classifier." not in str(key)]
    if missing:
        raise ValueError(f"--model {model}: the weights lack {len(missing)} parts of a ViT, such as {missing[0]}")
    return _with_head(vit if base.image_size == network.image_size else _at_size_of(network, vit), zero_head)


def _at_size_of(network: ViTConfig, vit: ViTForImageClassification) -> ViTForImageClassification:
    """Return a network for images of another size. Its positions are resampled once, linearly with aligned corners."""
    weights, name = vit.state_dict(), "vit.embeddings.position_embeddings"
    class_token, patches = weights[name][:, :1], weights[name][:, 1:]
    old_side, side = math.isqrt(patches.shape[1]), network.image_size // network.patch_size
    grid = patches.reshape(1, old_side, old_side, -1).permute(0, 3, 1, 2)
    resampled = F.interpolate(grid, size=(side, side), mode="bilinear", align_corners=True)
    weights[name] = torch.cat([class_token, resampled.flatten(2).transpose(1, 2)], dim=1)
    with torch.device("meta"):  # shapes alone: the weights are those of the other network
        fitted = ViTForImageClassification(network)
    fitted.load_state_dict(weights, assign=True)
    return fitted


def _with_head(vit: ViTForImageClassification, zero_head: bool) -> ViTClassifier:
    if zero_head:
        nn.init.zeros_(vit.classifier.weight)
        nn.init.zeros_(vit.classifier.bias)
    _place_dropout(vit)
    return ViTClassifier(vit)


def _place_dropout(vit: ViTForImageClassification) -> None:
    """Drop what the published network drops: after the embeddings, and before and after the second layer of each MLP.

    The network of transformers drops after the attention, too, and not before that layer.
    """
    share = vit.config.hidden_dropout_prob
    for name, module in [*vit.named_modules()]:
        if isinstance(module, nn.Dropout):
            module.p = share if name == "vit.embeddings.dropout" else 0.0
        elif name.endswith(("mlp.fc2", "output.dense")) and ".attention." not in name:
            module.drop_input, module.drop_output = nn.Dropout(share), nn.Dropout(share)
            module.register_forward_pre_hook(_drop_input)
            module.register_forward_hook(_drop_output)


def _drop_input(module: Any, inputs: tuple[torch.Tensor]) -> Any:
    return module.drop_input(inputs[0])


def _drop_output(module: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> Any:
    return module.drop_output(output)
