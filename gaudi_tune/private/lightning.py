"""Lightning, whose way to save a checkpoint waits for all workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def write_checkpoint(trainer: Any, path: Path) -> None:
    """Write what ``Trainer.save_checkpoint()`` writes, on this worker alone: that one ends in a barrier.

    Not for models whose weights are spread over the workers.
    """
    torch.save(trainer._checkpoint_connector.dump_checkpoint(weights_only=False), path)
