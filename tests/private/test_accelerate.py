"""What this project uses of accelerate that it does not promise to keep."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from gaudi_tune.private.accelerate import forget_accelerator


def test_an_accelerator_may_differ_from_the_one_before() -> None:
    forget_accelerator()
    assert Accelerator(cpu=True, mixed_precision="bf16").mixed_precision == "bf16"
    assert Accelerator(cpu=True).mixed_precision == "bf16"
    with pytest.raises(ValueError, match="AcceleratorState has already been initialized"):
        Accelerator(cpu=True, mixed_precision="no")
    forget_accelerator()
    assert Accelerator(cpu=True).mixed_precision == "no"


def test_data_loaders_of_a_trial_that_was_stopped_are_forgotten() -> None:
    accelerator = Accelerator(cpu=True)
    next(iter(accelerator.prepare(DataLoader(TensorDataset(torch.zeros(4, 1)), batch_size=1))))
    assert accelerator.gradient_state.in_dataloader
    forget_accelerator()
    assert not Accelerator(cpu=True).gradient_state.in_dataloader
