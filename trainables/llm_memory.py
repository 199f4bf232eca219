"""How much memory of a device a LoRA trial needs, from the model's configuration. It imports nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

BYTES_OF_ADAPTER = 16
"""Bytes of a parameter of the adapter: itself, its gradient, and two moments of AdamW, in float32."""
TOKENS_AT_A_TIME = 1024
"""Tokens whose logits are in float32 at a time: with 128,256 words, 0.5 GB, and two or three times as much with the
gradients."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes of a device's memory that a trial needs on each of its workers."""

    parameters: int
    """Parameters of the base model."""
    base: int
    adapter: int
    """The adapter with its gradients and AdamW's moments."""
    activations: int
    logits: int
    """Logits, their gradients, and those of some tokens in float32."""

    @property
    def total(self) -> int:
        """All of it, without what the device's software takes for itself."""
        return self.base + self.adapter + self.activations + self.logits

    def __str__(self) -> str:
        parts = {"base": self.base, "adapter": self.adapter, "activations": self.activations, "logits": self.logits}
        shares = ", ".join(f"{name} {value / 1e9:.2f}" for name, value in parts.items())
        return f"about {self.total / 1e9:.2f} GB of a device ({shares})"


def memory_need(
    model: Mapping[str, Any],
    *,
    rank: int,
    target: Literal["all", "attention", "mlp"] = "all",
    samples: int,
    length: int,
    dropout: bool = False,
    checkpointing: bool = False,
    bytes_of_base: int = 2,
    shards: int = 1,
    parameters: int = 0,
) -> MemoryNeed:
    """Return what a trial needs of its device's memory.

    It is exact for weights, and an estimate for what other families than Llama keep for the backward pass. What a layer
    of Llama keeps was counted with torch's hooks for saved tensors; a test repeats the count.

    Args:
        model: The model's configuration, as Llama's ``config.json`` has it.
        rank: The adapter's rank.
        target: Which linear layers have one.
        samples: Samples of a micro-batch.
        length: Tokens of each.
        dropout: Whether the adapter has dropout.
        checkpointing: Whether the backward pass computes activations again.
        bytes_of_base: Bytes of a weight of the base, and of an activation: 2 for bfloat16, 4 for float32.
        shards: How many devices share the weights. Each also has the whole embeddings, and two layers at a time.
        parameters: Parameters of the base model; 0: those of a Llama of this configuration.
    """
    width, layers = model["hidden_size"], model["num_hidden_layers"]
    heads = model.get("num_attention_heads") or 1
    inner = model.get("intermediate_size") or model.get("n_inner") or 4 * width
    head_size = model.get("head_dim") or width // heads
    queries, keys = heads * head_size, (model.get("num_key_value_heads") or heads) * head_size
    attention = [(width, queries), (width, keys), (width, keys), (queries, width)]
    mlp = [(width, inner), (width, inner), (inner, width)]
    embeddings = model["vocab_size"] * width * (1 if model.get("tie_word_embeddings") else 2)
    parameters = parameters or layers * (sum(a * b for a, b in attention + mlp) + 2 * width) + embeddings + width
    layer = (parameters - embeddings) // layers
    on_device = parameters if shards == 1 else parameters // shards + embeddings + 2 * layer
    adapted = {"all": attention + mlp, "attention": attention, "mlp": mlp}[target]
    adapter = layers * sum(rank * (a + b) for a, b in adapted)
    # Bytes a token and layer, in bfloat16: norms in float32, rotations, attention, the gated MLP; of each adapter the
    # output of its first matrix; and without an adapter, the input that frozen weights need not keep.
    of_layer = 18 * width + 8 * inner + 6 * queries + 4 * keys + 4.5 * rank * len(adapted)
    of_layer -= {"all": 0, "attention": 2 * inner + 4 * width, "mlp": 4 * width + 4 * queries}[target]
    of_layer += 4 * sum(a for a, _ in adapted) if dropout else 0
    kept = 2 * width * layers + of_layer if checkpointing else of_layer * layers
    tokens, scale = samples * length, bytes_of_base / 2
    return MemoryNeed(
        parameters=parameters,
        base=on_device * bytes_of_base,
        adapter=adapter * BYTES_OF_ADAPTER // shards,
        activations=int(tokens * kept * scale),
        logits=int(model["vocab_size"] * (4 * tokens * scale + 12 * min(tokens, TOKENS_AT_A_TIME))),
    )
