"""The configuration of a text encoder, and how many tokens it accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaudi_tune.recipes.data.pretrained import from_pretrained

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

COUNT_AFTER_PADDING = (
    "camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "markuplm", "mpnet", "roberta",
    "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
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
    """Return for how many tokens an encoder has positions; None if there is no limit.

    Encoders that rotate, or that know only distances, have no table of positions that ends: what their configuration
    names is the length that they were trained on.
    """
    count: int | None = getattr(config, "max_position_embeddings", None)
    rotates = getattr(config, "rope_parameters", None) or getattr(config, "position_embedding_type", "") == "rotary"
    only_distances = not getattr(config, "position_biased_input", True) or getattr(config, "alibi", False)
    if rotates or only_distances or (count is not None and count < 1):  # XLNet has -1
        return None
    if count is not None and config.model_type in COUNT_AFTER_PADDING:
        return count - config.pad_token_id - 1
    return count
