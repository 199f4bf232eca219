"""Lightning, whose public way to save a checkpoint waits for all workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def write_checkpoint(trainer: Any, path: Path) -> None:
    """Write the same as ``Trainer.save_checkpoint()``, but on this worker alone, without its barrier at the end.

    This does not work for models whose weights are spread over workers.
    """
    torch.save(trainer._checkpoint_connector.dump_checkpoint(weights_only=False), path)
