"""The weights of the ViT authors as they publish them: ``.npz`` files of arrays with Flax's names.

https://github.com/google-research/vision_transformer lists the files; its ``vit_jax/models_vit.py`` has the names.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaudi_tune.data.pretrained import first_line

SUFFIX = ".npz"
"""Ends the names of such files."""
EMBEDDING, POSITIONS = "embedding/kernel", "Transformer/posembed_input/pos_embedding"
LAYER = "Transformer/encoderblock_{}/"
ATTENTION, MLP = "MultiHeadDotProductAttention_1/", "MlpBlock_3/"
"""Flax's names that are needed twice."""
NETWORK = {"embedding": "embeddings.patch_embeddings.projection", "Transformer/encoder_norm": "layernorm"}
"""Parts of the network, by transformers' names. Left out are the head and, where there is one, the layer before it
(``pre_logits``), as the authors do to fine-tune."""
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
"""Parts of a layer, by the names that transformers' published ViTs have, which all its versions read."""
EPS = 1e-6
"""Flax's, in the layers' normalization."""


def describe_npz(file: str) -> dict[str, Any]:
    """Return the network of a file's weights, as the arguments of transformers' ViTConfig.

    Raises:
        ValueError: The file cannot be read, or holds something else.
    """
    arrays, first = _Arrays(file), LAYER.format(0)
    patch, _, _, width = arrays[EMBEDDING].shape
    return {
        "hidden_size": width,
        "num_hidden_layers": sum(name.endswith("LayerNorm_0/scale") for name in arrays.names),
        "num_attention_heads": arrays[f"{first}{ATTENTION}query/kernel"].shape[1],
        "intermediate_size": arrays[f"{first}{MLP}Dense_0/kernel"].shape[1],
        "patch_size": patch,
        "image_size": patch * math.isqrt(arrays[POSITIONS].shape[1] - 1),  # one position is the class token's
        "layer_norm_eps": EPS,
    }


def read_npz(file: str) -> dict[str, torch.Tensor]:
    """Return the weights in a file by transformers' names, without the head.

    Raises:
        ValueError: The file cannot be read, or holds something else.
    """
    arrays, names = _Arrays(file), dict(NETWORK)
    for layer in range(describe_npz(file)["num_hidden_layers"]):
        names |= {LAYER.format(layer) + theirs: f"encoder.layer.{layer}.{ours}" for theirs, ours in PARTS.items()}
    weights = {"embeddings.cls_token": arrays["cls"], "embeddings.position_embeddings": arrays[POSITIONS]}
    for theirs, ours in names.items():
        norm = "norm" in ours
        weights[f"{ours}.weight"] = arrays[f"{theirs}/scale"] if norm else _as_torch_has_it(arrays, theirs)
        weights[f"{ours}.bias"] = arrays[f"{theirs}/bias"].reshape(-1)
    return {f"vit.{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in weights.items()}


def _as_torch_has_it(arrays: _Arrays, name: str) -> np.ndarray:
    """Return a kernel with its outputs first; Flax has them last, and those of attention by head."""
    kernel = arrays[f"{name}/kernel"]
    if name == "embedding":
        return kernel.transpose(3, 2, 0, 1)
    outputs = kernel.shape[-1] if name.endswith("/out") else kernel[0].size
    return kernel.reshape(-1, outputs).T


class _Arrays:
    """The arrays in a file, each read when it is asked for."""

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
