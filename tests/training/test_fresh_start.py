import gc
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from gaudi_tune.devices.device import CPUS_PER_WORKER
from gaudi_tune.training.fresh_start import fresh_start, release_memory, seed_everything
from tests.helpers.stand_in_hpu import forked_output_of


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), torch.rand(()).item()


def test_the_same_seed_gives_the_same_numbers_everywhere() -> None:
    seed_everything(3, 0, 1)
    first = draw()
    seed_everything(3, 0, 1)
    assert draw() == first


def test_rank_and_epoch_change_the_numbers() -> None:
    draws = set()
    for parts in [(3, 0, 1), (3, 1, 0), (3, 1, 1), (4, 0, 1)]:
        seed_everything(*parts)
        draws.add(draw())
    assert len(draws) == 4


def test_switches_that_a_trial_left_changed_are_set_back() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.set_anomaly_enabled(True)
    torch.set_float32_matmul_precision("medium")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(CPUS_PER_WORKER + 1)
    torch.set_default_device("meta")
    torch.backends.cudnn.deterministic = True
    fresh_start(0)
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()
    assert not torch.is_anomaly_enabled()
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.benchmark
    assert torch.get_num_threads() == CPUS_PER_WORKER
    assert torch.ones(1).device == torch.device("cpu")
    assert not torch.backends.cudnn.deterministic


def test_cycles_left_by_a_trial_are_collected() -> None:
    class Node:
        alive = 0

        def __init__(self) -> None:
            self.itself = self
            Node.alive += 1

        def __del__(self) -> None:
            Node.alive -= 1

    for _ in range(2):  # also after the first release, which leaves what survived out of later collections
        Node()
        release_memory()
        assert Node.alive == 0


def test_remains_of_the_first_trial_are_not_looked_at_again() -> None:
    release_memory()
    frozen = gc.get_freeze_count()
    assert frozen > 0
    of_a_later_trial = [[number] for number in range(10_000)]
    release_memory()
    assert gc.get_freeze_count() <= frozen, f"a leak of a later trial is to be found: {len(of_a_later_trial)} objects"


ON_AN_HPU = """
import gc, sys, torch
from gaudi_tune.devices.hpu import HPU
from gaudi_tune.private.fork_server import may_be_copied, preload
preload(HPU.imports)
print(may_be_copied(), {*HPU.imports} <= {*sys.modules})
from gaudi_tune.devices.find import worker_device
from gaudi_tune.training.fresh_start import seed_everything
device = worker_device()
def drawn(*parts):
    seed_everything(*parts)
    dropped = torch.nn.functional.dropout(torch.ones(30, device=device))
    return torch.cat([torch.rand(3, device=device), dropped]).tolist()
seed, rank, steps = 1, 0, 5
first = drawn(seed, rank, steps)
others = [drawn(2, rank, steps), drawn(seed, 1, steps), drawn(seed, rank, 6)]
print(device, drawn(seed, rank, steps) == first, first in others)
torch.hpu.manual_seed_all(7)
again = torch.rand(3, device=device).tolist()
torch.manual_seed(7)
print(torch.rand(3, device=device).tolist() == again)
gc.unfreeze()  # as in a copy
"""


@pytest.mark.processes
def test_an_hpu_draws_what_the_seed_says(tmp_path: Path) -> None:
    """First, what a fork server imports for an HPU leaves nothing that may not be copied."""
    printed = forked_output_of(ON_AN_HPU, tmp_path, HABANA_VISIBLE_MODULES="0", HLS_MODULE_ID="0")
    assert printed.splitlines() == ["True True", "hpu True False", "True"]
