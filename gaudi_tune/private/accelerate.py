"""accelerate, which keeps one state for the whole life of a process."""

from __future__ import annotations

import sys


def forget_accelerator() -> None:
    """Reset the state that all Accelerators of a process share, if there is one. No public API does this.

    Otherwise a second ``Accelerator`` gets the ``mixed_precision`` of the first, or raises an error if it requests
    another one, and accelerate keeps the data loaders of stopped trials. Hugging Face's Trainer makes an Accelerator,
    too.
    """
    if "accelerate.state" in sys.modules:
        state = sys.modules["accelerate.state"]
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
