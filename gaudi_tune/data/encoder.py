"""The configuration of a text encoder, and how many tokens it accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaudi_tune.data.pretrained import from_pretrained

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

COUNT_AFTER_PADDING = (
    "camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "mpnet", "roberta", "roberta-prelayernorm",
    "xlm-roberta", "xlm-roberta-xl",
)  # fmt: skip
"""Families of encoders in which the first token has the position after the id of padding. Earlier positions are
unused."""


def encoder_config(model: str) -> PreTrainedConfig:
    """Return the configuration of an encoder in transformers.

    Args:
        model: A name on the hub, or a local folder.

    Raises:
        ValueError: There is no such model.
    """
    from transformers import AutoConfig

    config: PreTrainedConfig = from_pretrained(AutoConfig.from_pretrained, model)
    return config


def positions(config: PreTrainedConfig) -> int | None:
    """Return for how many tokens an encoder has positions; None if there is no limit."""
    count: int | None = getattr(config, "max_position_embeddings", None)
    if count is not None and config.model_type in COUNT_AFTER_PADDING:
        return count - config.pad_token_id - 1
    return count
