"""What this project uses of accelerate that it does not promise to keep."""

from __future__ import annotations

import pytest
from accelerate import Accelerator

from trainables.runtime.internals.accelerate import forget_accelerator


def test_an_accelerator_may_differ_from_the_one_before() -> None:
    forget_accelerator()
    assert Accelerator(cpu=True, gradient_accumulation_steps=4).mixed_precision == "no"
    with pytest.raises(ValueError, match="AcceleratorState has already been initialized"):
        Accelerator(cpu=True, mixed_precision="bf16")
    forget_accelerator()
    second = Accelerator(cpu=True, mixed_precision="bf16")
    assert (second.mixed_precision, second.gradient_accumulation_steps) == ("bf16", 1)
    forget_accelerator()
