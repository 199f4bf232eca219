"""What this project uses of accelerate that it does not promise to keep."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from gaudi_tune.private.accelerate import forget_accelerator
from tests.helpers.stand_in_hpu import fork


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


ON_AN_HPU = """
import os, torch, habana_frameworks.torch.distributed.hccl
from types import SimpleNamespace
import ray.train, ray.train.torch
from ray.air._internal.device_manager.hpu import HPUTorchDeviceManager
from gaudi_tune.private import ray_train_torch
ranks = {"world": ("rank", "size"), "local": ("rank", "world_size"), "node": ("rank",)}
numbers = {f"get_{who}_{what}": 2 if "size" in what else int(os.environ["HLS_MODULE_ID"]) * (who != "node")
           for who, whats in ranks.items() for what in whats}
context = SimpleNamespace(**{name: lambda number=number: number for name, number in numbers.items()})
ray.train.get_context = lambda: context
ray.train.torch.get_device = lambda: HPUTorchDeviceManager().get_devices()[0]
ray_train_torch._join_process_group("hccl", "127.0.0.1", int(os.environ["PORT"]))
from accelerate import Accelerator
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 2))
print(accelerator.num_processes, model.device_ids, model(torch.ones(1, 2, device=accelerator.device)).device)
torch.distributed.destroy_process_group()
"""


@pytest.mark.processes
def test_a_model_on_several_hpus_is_prepared_as_a_worker_of_a_group_does_it(tmp_path: Path) -> None:
    """Whole trainers in sweeps: ``python -m tests.tools.conformance --only sweep``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [fork(ON_AN_HPU, tmp_path, PYTHONWARNINGS="ignore", PORT=port, HLS_MODULE_ID=rank) for rank in "01"]
    for process in ranks:
        assert process.printed().splitlines()[-1] == "2 [0] hpu:0"
