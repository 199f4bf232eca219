"""Loads pretrained models and their parts, with errors that say what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_tune.base.errors import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

RANDOM = "random"
"""The value of ``--model`` that stands for training from scratch."""
HUB = "in21k"
"""The value of ``--model`` that stands for the weights of the ViT authors on the hub, for the size of the network."""
COUNT_AFTER_PADDING = (
    "camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "markuplm", "mpnet", "roberta",
    "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
)  # fmt: skip
"""Families of encoders in which the first token has the position after the id of padding. Earlier positions are
unused."""


def from_pretrained(load: Callable[[str], Any], model: str) -> Any:
    """Return ``load(model)``.

    Raises:
        ValueError: There is no such model.
    """
    try:
        return load(model)
    except Exception as error:  # libraries of models and the hub's network: each fault raises its own
        problem = (
            "the folder does not hold a model"
            if Path(model).exists()
            else "no such folder here, and the hub lacks it or cannot be reached"
        )
        raise ValueError(
            f"--model {model}: {problem} ({first_line(error)}). Give a folder written by save_pretrained (config.json, "
            f"weights, tokenizer) or a name on the hub."
        ) from error


def check_model(model: str) -> None:
    """Check that a model exists locally or on the hub, without loading it.

    Raises:
        ValueError: There is no such model.
    """
    from_pretrained(_find_weights, model)


def _find_weights(model: str) -> None:
    if not Path(model).exists():
        from huggingface_hub import hf_hub_download

        hf_hub_download(model, "config.json")
    elif not any(file.suffix in (".safetensors", ".bin") for file in Path(model).glob("*")):
        raise FileNotFoundError("it has no weights, *.safetensors or *.bin")


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


def parameters_of(config: PreTrainedConfig, model: str) -> int:
    """Return the number of parameters of a causal language model, which are not loaded.

    Raises:
        ValueError: The configuration is not that of a causal language model.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        empty = from_pretrained(lambda name: AutoModelForCausalLM.from_config(config), model)
    return sum(parameter.numel() for parameter in empty.parameters())


def check_length(config: PreTrainedConfig, model: str, max_length: int) -> None:
    """Check that a model has positions for so many tokens.

    Raises:
        ValueError: It has fewer.
    """
    limit = positions(config)
    if limit is not None and max_length > limit:
        raise ValueError(f"max_length must be at most the {limit} positions of {model}, but got {max_length}")


def positions(config: PreTrainedConfig) -> int | None:
    """Return for how many tokens an encoder has positions; None if there is no limit.

    Encoders that rotate, or that know only distances, have no table of positions that ends: what their configuration
    names is the length that they were trained on.
    """
    count: int | None = getattr(config, "max_position_embeddings", None)
    # The names of transformers 4; ESM has one of them, and says beside it which kind of positions it has.
    has_angles = any(getattr(config, name, None) for name in ("rope_theta", "global_rope_theta"))
    kind = getattr(config, "position_embedding_type", "rotary" if has_angles else "")
    rotates = getattr(config, "rope_parameters", None) or kind == "rotary"
    only_distances = not getattr(config, "position_biased_input", True) or getattr(config, "alibi", False)
    if rotates or only_distances or (count is not None and count < 1):  # XLNet has -1
        return None
    if count is not None and config.model_type in COUNT_AFTER_PADDING:
        return count - config.pad_token_id - 1
    return count
