"""Checkpoints: one file of tensors and plain values, written whole or not at all, read without unpickling code."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch

STATE_FILE = "state.pt"
"""The file in a checkpoint's directory that holds the state of the trial."""
TRAINING_ALONE = ("optimizer", "schedule")
"""Parts of the state that a trained model does without."""


def write_state(directory: Path, state: dict[str, Any]) -> None:
    """Write ``state`` (tensors and plain values) to ``directory``; a crash in between leaves no file of that name."""
    partial = directory / f"{STATE_FILE}.partial"
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(directory / STATE_FILE)


def read_state(directory: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read what :func:`write_state` wrote, tensors placed on ``device``.

    Raises:
        FileNotFoundError: There is no checkpoint in ``directory``.
    """
    file = directory / STATE_FILE
    if not file.is_file():
        raise FileNotFoundError(f"no checkpoint in {directory}: {STATE_FILE} is missing")
    state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
    return state


def copy_to_predict(checkpoint: Path, directory: Path) -> None:
    """Copy a checkpoint without what only training needs: with AdamW, a third of it is left.

    Files whose names begin with a dot, which are Tune's, are left out.

    Args:
        checkpoint: Of any train loop; of those that :func:`write_state` wrote, the optimizer's state is left out.
        directory: Made here.

    Raises:
        FileNotFoundError: There is no such checkpoint.
    """
    shutil.copytree(checkpoint, directory, ignore=shutil.ignore_patterns(".*", STATE_FILE))
    if (checkpoint / STATE_FILE).is_file():
        state = read_state(checkpoint)
        write_state(directory, {name: part for name, part in state.items() if name not in TRAINING_ALONE})
