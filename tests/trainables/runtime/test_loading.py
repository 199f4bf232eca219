from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from trainables.runtime.loading import Batch, TrainDraws, eval_draws, make_loader

SIZE = 25


class Noisy(Dataset[Any]):
    """Each sample is its index, with noise as augmentation would add."""

    def __len__(self) -> int:
        return SIZE

    def __getitems__(self, indices: list[int]) -> Batch:
        return {"labels": torch.tensor(indices), "noise": torch.rand(len(indices))}


def draws(rank: int = 0, world: int = 1, accumulation: int = 1, seed: int = 3) -> TrainDraws:
    return TrainDraws(SIZE, 8, accumulation, rank, world, seed)


@pytest.mark.parametrize(("world", "accumulation"), [(2, 1), (4, 1), (2, 2)])
def test_workers_together_train_on_the_batches_of_one(world: int, accumulation: int) -> None:
    ranks = [draws(rank, world, accumulation) for rank in range(world)]
    alone = draws()
    for epoch in range(2):
        for sampler in (alone, *ranks):
            sampler.start_at(epoch, 0)
        passes = [list(sampler) for sampler in ranks]
        for step, whole in enumerate(alone):
            own = [passes[r][step * accumulation + part].indices for r in range(world) for part in range(accumulation)]
            assert sorted(index for indices in own for index in indices) == sorted(whole.indices)
    assert len(list(alone)) == len(alone) == SIZE // 8


def test_every_epoch_has_its_order_and_repeats_it() -> None:
    sampler = draws()
    orders = []
    for epoch in (0, 1, 0):
        sampler.start_at(epoch, 0)
        orders.append([draw.indices for draw in sampler])
    assert orders[0] == orders[2] != orders[1]


def test_an_epoch_can_be_entered_at_any_step() -> None:
    sampler = draws(accumulation=2)
    whole = list(sampler)
    sampler.start_at(0, 2)
    assert list(sampler) == whole[4:]
    assert len(sampler) == 2


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_augmentation_depends_neither_on_the_process_nor_on_what_came_before(loader_workers: int) -> None:
    sampler = draws()
    torch.manual_seed(0)
    sampler.start_at(1, 0)
    first = [batch["noise"] for batch in make_loader(Noisy(), sampler, 0)]
    left = torch.rand(1)
    sampler.start_at(1, 1)
    later = [batch["noise"] for batch in make_loader(Noisy(), sampler, loader_workers)]
    assert all(torch.equal(a, b) for a, b in zip(first[1:], later, strict=True))
    torch.manual_seed(0)
    assert torch.equal(left, torch.rand(1))  # loading leaves the process's own generator alone


@pytest.mark.parametrize("world", [1, 2, 3])
def test_each_validation_sample_is_drawn_once(world: int) -> None:
    size = 131
    drawn = [index for rank in range(world) for draw in eval_draws(size, rank, world) for index in draw.indices]
    assert sorted(drawn) == list(range(size))
