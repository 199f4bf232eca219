"""Checkpoints: one file of tensors and plain values, written whole or not at all, read without unpickling code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

STATE_FILE = "state.pt"
"""The file in a checkpoint's directory that holds the state of the trial."""


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
