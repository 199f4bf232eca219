"""Metrics over ranks, in two processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from gaudi_tune.recipes.metrics import gather_over_ranks, sum_over_ranks

WORLD = 2
NOTHING = torch.empty(0, dtype=torch.int64)


def rank(number: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=WORLD)
    gathered = {
        "labels": gather_over_ranks(torch.arange(3 - number) + 10 * number),
        "numbers": gather_over_ranks(torch.tensor([1.5, 2.25]) if number == 0 else NOTHING),
        "exact": gather_over_ranks(torch.tensor([0.1], dtype=torch.float64) if number == 0 else NOTHING),
        "nothing": gather_over_ranks(NOTHING),
        "sum": sum_over_ranks(torch.tensor([1.0, float(number)])),
    }
    torch.save(gathered, f"{folder}/{number}.pt")
    dist.destroy_process_group()


@pytest.mark.processes
def test_ranks_may_hold_different_numbers_of_values_or_none(tmp_path: Path) -> None:
    spawn(rank, args=(str(tmp_path),), nprocs=WORLD)
    for number in range(WORLD):
        gathered = torch.load(tmp_path / f"{number}.pt", weights_only=True)
        assert {name: values.tolist() for name, values in gathered.items()} == {
            "labels": [0, 1, 2, 10, 11],
            "numbers": [1.5, 2.25],
            "exact": [0.1],
            "nothing": [],
            "sum": [2.0, 1.0],
        }
        assert gathered["labels"].dtype == torch.int64
        assert gathered["numbers"].dtype == torch.float32
