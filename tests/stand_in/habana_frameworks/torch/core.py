"""Registers the device; in lazy mode, cuts the graph."""

import os

from habana_frameworks.torch import _recipes
from habana_frameworks.torch.hpu.metrics import COUNTS


def mark_step() -> None:
    """Run what was collected. Stricter than the real one, which only warns in eager mode."""
    if os.environ.get("PT_HPU_LAZY_MODE") != "1":
        raise RuntimeError("mark_step() has no meaning in eager mode (PT_HPU_LAZY_MODE=0)")
    COUNTS["mark_step"] += 1
    _recipes.cut()
