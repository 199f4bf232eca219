"""Loading pretrained models and their parts, with errors that say what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

RANDOM = "random"
"""In place of pretrained weights: train from scratch."""
HUB = "in21k"
"""In place of a local folder: the weights of the ViT authors for that size, from the hub."""


def from_pretrained(load: Callable[[str], Any], model: str) -> Any:
    """Return ``load(model)``.

    Raises:
        ValueError: There is no such model.
    """
    try:
        return load(model)
    except Exception as error:
        where = (
            "the folder does not hold a model"
            if Path(model).exists()
            else "no such folder here, and the hub lacks it or cannot be reached"
        )
        raise ValueError(
            f"--model {model}: {where} ({first_line(error)}). Give a folder written by save_pretrained (config.json, "
            f"weights, tokenizer) or a name on the hub."
        ) from error


def see_model(model: str) -> None:
    """See that a model on the hub is there, or a copy of it, without what it takes to load it.

    Raises:
        ValueError: There is no such model.
    """
    if Path(model).exists():
        return
    from huggingface_hub import hf_hub_download

    from_pretrained(lambda name: hf_hub_download(name, "config.json"), model)


def first_line(error: BaseException) -> str:
    """Return an error of another library in one line."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
