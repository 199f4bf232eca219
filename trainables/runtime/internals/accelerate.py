"""accelerate, which keeps one state for all that a process ever does."""

from __future__ import annotations

import sys


def forget_accelerator() -> None:
    """Have accelerate forget the state that all Accelerators of a process share, if there was one.

    A second ``Accelerator`` with another ``mixed_precision`` raises otherwise, and one with another
    ``gradient_accumulation_steps`` gets that of the first. Hugging Face's Trainer makes one, too. Nothing public does
    it.
    """
    if "accelerate.state" in sys.modules:
        state = sys.modules["accelerate.state"]
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
