"""The configuration of a text encoder, and how many tokens it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaudi_tune.data.pretrained import from_pretrained

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

COUNT_AFTER_PADDING = (
    "camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "mpnet", "roberta", "roberta-prelayernorm",
    "xlm-roberta", "xlm-roberta-xl",
)  # fmt: skip
"""Families of encoders whose first token has the position after the id of padding, so that those up to it are lost."""


def encoder_config(model: str) -> PreTrainedConfig:
    """Return transformers' description of an encoder: a name on the hub, or a local folder.

    Raises:
        ValueError: There is no such model.
    """
    from transformers import AutoConfig

    described: PreTrainedConfig = from_pretrained(AutoConfig.from_pretrained, model)
    return described


def positions(described: PreTrainedConfig) -> int | None:
    """Return how many tokens an encoder has positions for; None where any number will do."""
    found: int | None = getattr(described, "max_position_embeddings", None)
    if found is not None and described.model_type in COUNT_AFTER_PADDING:
        return found - described.pad_token_id - 1
    return found
