from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils.data import Dataset

from gaudi_tune.recipes.loading import Batch, Loader, TrainSampler, eval_batches
from gaudi_tune.training.fresh_start import seed_host
from tests.helpers.small_task import SmallConfig

SIZE = 25


class Noisy(Dataset[Any]):
    """Each sample is its index, with noise as augmentation would add."""

    def __len__(self) -> int:
        return SIZE

    def __getitems__(self, indices: list[int]) -> Batch:
        return {"labels": torch.tensor(indices), "noise": torch.rand(len(indices))}


LENGTHS = np.array([3, 5, 9])[np.arange(SIZE) % 3]
"""Samples of three lengths, eight or nine of each."""


def sampler_of(
    rank: int = 0, world: int = 1, micro_batch: int = 0, batch_size: int = 8, **options: Any
) -> TrainSampler:
    config = SmallConfig(epochs=1, batch_size=batch_size, micro_batch=micro_batch, seed=3)
    return TrainSampler(SIZE, config, rank, world, **options)


@pytest.mark.parametrize("padded_to", [None, LENGTHS], ids=["one shape", "by length"])
@pytest.mark.parametrize(("world", "micro_batch", "parts"), [(2, 0, 1), (4, 2, 1), (2, 3, 2)])
def test_workers_together_train_on_the_batches_of_one(
    world: int, micro_batch: int, parts: int, padded_to: npt.NDArray[np.int64] | None
) -> None:
    ranks = [sampler_of(rank, world, micro_batch, padded_to=padded_to) for rank in range(world)]
    alone = sampler_of(padded_to=padded_to)
    for epoch in range(2):
        for sampler in (alone, *ranks):
            sampler.start_at(epoch, 0)
        taken = [list(sampler) for sampler in ranks]
        for step, whole in enumerate(alone):
            own = [taken[r][step * parts + part].indices for r in range(world) for part in range(parts)]
            assert sorted(index for indices in own for index in indices) == sorted(whole.indices)
            assert {taken[r][step * parts + part].length for r in range(world) for part in range(parts)} == {
                whole.length
            }
    assert len(list(alone)) == len(alone) == SIZE // 8


@pytest.mark.parametrize("padded_to", [None, LENGTHS], ids=["one shape", "by length"])
def test_every_epoch_has_its_order_and_repeats_it(padded_to: npt.NDArray[np.int64] | None) -> None:
    sampler = sampler_of(padded_to=padded_to)
    orders = []
    for epoch in (0, 1, 0):
        sampler.start_at(epoch, 0)
        orders.append([batch.indices for batch in sampler])
    assert orders[0] == orders[2] != orders[1]


def test_batches_have_samples_of_one_length_and_an_epoch_has_each_sample_at_most_once() -> None:
    sampler = sampler_of(batch_size=4, padded_to=LENGTHS)
    drawn: set[tuple[int, ...]] = set()
    for epoch in range(20):
        sampler.start_at(epoch, 0)
        batches = list(sampler)
        seen = [index for batch in batches for index in batch.indices]
        assert len(batches) == SIZE // 4
        assert len(set(seen)) == len(seen) == SIZE // 4 * 4
        # Nine, eight and eight samples: one of the first is left over, and is padded to the next length.
        assert sorted(int((LENGTHS[batch.indices] != batch.length).sum()) for batch in batches) == [0, 0, 0, 0, 1, 1]
        drawn.add(tuple(batch.length or 0 for batch in batches))
    assert len(drawn) > 10  # the order of the lengths is random, too


@pytest.mark.parametrize("padded_to", [None, LENGTHS], ids=["one shape", "by length"])
def test_an_epoch_can_be_entered_at_any_step(padded_to: npt.NDArray[np.int64] | None) -> None:
    sampler = sampler_of(micro_batch=4, padded_to=padded_to)
    whole = list(sampler)
    sampler.start_at(0, 2)
    assert list(sampler) == whole[4:]
    assert len(sampler) == 2


@pytest.mark.parametrize("loader_workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_augmentation_depends_neither_on_the_process_nor_on_what_came_before(loader_workers: int) -> None:
    sampler = sampler_of()
    torch.manual_seed(0)
    sampler.start_at(1, 0)
    first = [batch["noise"] for batch in Loader(Noisy(), sampler, 0)]
    left = torch.rand(1)
    sampler.start_at(1, 1)
    later = [batch["noise"] for batch in Loader(Noisy(), sampler, loader_workers)]
    assert all(torch.equal(a, b) for a, b in zip(first[1:], later, strict=True))
    torch.manual_seed(0)
    assert torch.equal(left, torch.rand(1))  # loading leaves the process's own generator alone


def test_loading_leaves_the_generators_of_python_and_numpy_alone() -> None:
    seed_host(0)
    expected = random.random(), np.random.random()
    seed_host(0)
    assert len(list(Loader(Noisy(), sampler_of(), 0))) == SIZE // 8
    assert (random.random(), np.random.random()) == expected


@pytest.mark.parametrize("world", [1, 2, 3])
def test_each_validation_sample_is_in_one_batch(world: int) -> None:
    size = 131
    loaded = [
        index for rank in range(world) for batch in eval_batches(size, rank, world, 64) for index in batch.indices
    ]
    assert sorted(loaded) == list(range(size))


def test_validation_samples_of_like_length_share_a_batch() -> None:
    lengths = np.array([2, 7, 3, 7, 2, 3] * 40)
    batches = eval_batches(len(lengths), 0, 1, 64, lengths)
    assert sorted(index for batch in batches for index in batch.indices) == list(range(len(lengths)))
    assert [batch.length for batch in batches] == [2, 3, 7, 7]
    assert all(lengths[batch.indices].max() == batch.length for batch in batches)
