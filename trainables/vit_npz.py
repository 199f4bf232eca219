"""Reads the published weights of the ViT authors, which are ``.npz`` files of arrays with Flax's names.

https://github.com/google-research/vision_transformer lists the files; its ``vit_jax/models_vit.py`` has the names.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaudi_tune.base.errors import first_line

SUFFIX = ".npz"
"""The extension of these files."""
EMBEDDING, POSITIONS = "embedding/kernel", "Transformer/posembed_input/pos_embedding"
LAYER = "Transformer/encoderblock_{}/"
ATTENTION, MLP = "MultiHeadDotProductAttention_1/", "MlpBlock_3/"
"""Names in Flax that are used twice."""
NETWORK = {"embedding": "embeddings.patch_embeddings.projection", "Transformer/encoder_norm": "layernorm"}
"""Names in Flax and in transformers of the parts of the network. The head and the layer before it (``pre_logits``, if
there is one) are left out, as the authors do for fine-tuning."""
PARTS = {
    "LayerNorm_0": "layernorm_before",
    "LayerNorm_2": "layernorm_after",
    f"{ATTENTION}query": "attention.attention.query",
    f"{ATTENTION}key": "attention.attention.key",
    f"{ATTENTION}value": "attention.attention.value",
    f"{ATTENTION}out": "attention.output.dense",
    f"{MLP}Dense_0": "intermediate.dense",
    f"{MLP}Dense_1": "output.dense",
}
"""Names in Flax and in transformers of the parts of a layer. These names of transformers' published ViTs can be read by
all its versions."""
EPS = 1e-6
"""The epsilon of Flax's layer normalization."""


def describe_npz(file: str) -> dict[str, Any]:
    """Return the arguments of transformers' ViTConfig for the network of a file's weights.

    Raises:
        ValueError: The file cannot be read, or has other contents.
    """
    arrays, layer_0 = _Arrays(file), LAYER.format(0)
    patch, _, _, width = arrays[EMBEDDING].shape
    return {
        "hidden_size": width,
        "num_hidden_layers": sum(name.endswith("LayerNorm_0/scale") for name in arrays.names),
        "num_attention_heads": arrays[f"{layer_0}{ATTENTION}query/kernel"].shape[1],
        "intermediate_size": arrays[f"{layer_0}{MLP}Dense_0/kernel"].shape[1],
        "patch_size": patch,
        "image_size": patch * math.isqrt(arrays[POSITIONS].shape[1] - 1),  # one position is the class token's
        "layer_norm_eps": EPS,
    }


def read_npz(file: str) -> dict[str, torch.Tensor]:
    """Return the weights in a file by their names in transformers, without the head.

    Raises:
        ValueError: The file cannot be read, or has other contents.
    """
    arrays, names = _Arrays(file), dict(NETWORK)
    for layer in range(describe_npz(file)["num_hidden_layers"]):
        names |= {LAYER.format(layer) + flax_name: f"encoder.layer.{layer}.{name}" for flax_name, name in PARTS.items()}
    weights = {"embeddings.cls_token": arrays["cls"], "embeddings.position_embeddings": arrays[POSITIONS]}
    for flax_name, name in names.items():
        is_norm = "norm" in name
        weights[f"{name}.weight"] = arrays[f"{flax_name}/scale"] if is_norm else _torch_weight(arrays, flax_name)
        weights[f"{name}.bias"] = arrays[f"{flax_name}/bias"].reshape(-1)
    return {f"vit.{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in weights.items()}


def _torch_weight(arrays: _Arrays, name: str) -> np.ndarray:
    """Return a kernel with its outputs first. Flax has them last, and splits those of attention by heads."""
    kernel = arrays[f"{name}/kernel"]
    if name == "embedding":
        return kernel.transpose(3, 2, 0, 1)
    outputs = kernel.shape[-1] if name.endswith("/out") else kernel[0].size
    return kernel.reshape(-1, outputs).T


class _Arrays:
    """The arrays in a file. Each is read when it is used."""

    def __init__(self, file: str) -> None:
        self._file = file
        try:
            self._stored = np.load(Path(file).expanduser())
            self.names = list(self._stored)
        except Exception as error:  # NumPy's, zipfile's and the system's
            raise ValueError(f"--model {file}: it cannot be read as an .npz file ({first_line(error)})") from error

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            array: np.ndarray = self._stored[name]
        except Exception as error:
            raise ValueError(
                f"--model {self._file}: these are not the weights of a ViT as its authors publish them: {name} is "
                f"missing or damaged. Give one of their files, a folder of save_pretrained, or a name on the hub."
            ) from error
        return array
