"""Loads pretrained models and their parts, with errors that say what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaudi_tune.base.errors import first_line

RANDOM = "random"
"""The value of ``--model`` that stands for training from scratch."""
HUB = "in21k"
"""The value of ``--model`` that stands for the weights of the ViT authors on the hub, for the size of the network."""


def from_pretrained(load: Callable[[str], Any], model: str) -> Any:
    """Return ``load(model)``.

    Raises:
        ValueError: There is no such model.
    """
    try:
        return load(model)
    except Exception as error:
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
    if Path(model).exists():
        return
    from huggingface_hub import hf_hub_download

    from_pretrained(lambda name: hf_hub_download(name, "config.json"), model)
