"""accelerate, which keeps one state for all that a process ever does."""

from __future__ import annotations

import sys


def forget_accelerator() -> None:
    """Have accelerate forget the state that all Accelerators of a process share, if there was one.

    A second ``Accelerator`` gets the ``mixed_precision`` of the first, or raises if it asks for another, and the data
    loaders of a trial that was stopped stay known. Hugging Face's Trainer makes one, too. Nothing public does it.
    """
    if "accelerate.state" in sys.modules:
        state = sys.modules["accelerate.state"]
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
