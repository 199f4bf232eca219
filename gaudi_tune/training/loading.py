"""Which samples a worker trains on, in which order, and how they are loaded."""

from __future__ import annotations

import os
import pickle
import random
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, DistributedSampler, Sampler

from gaudi_tune.training.fresh_start import seed_host
from gaudi_tune.training.loader_processes import loader_processes
from gaudi_tune.training.training_config import TrainingConfig, passes_of

Batch = dict[str, torch.Tensor]
"""Tensors of one batch, first dimension the samples; for a classifier ``labels`` holds class indices of shape (n,)."""

EVAL_BATCH_PER_WORKER = 64
"""Validation samples in one forward pass of a worker; without gradients more fit than in training. The same in every
trial: evaluation has another compiled graph than training at any size, and at one size a sweep has one."""


class BatchIndices(NamedTuple):
    """Which samples one pass of one worker takes, and seed and epoch for what is random in loading them."""

    seed: tuple[int, ...]
    indices: list[int]


class TrainSampler(Sampler[BatchIndices]):
    """This rank's passes of an epoch, from any step on.

    The global batches depend on the seed and the epoch alone: two workers together train on the batches that one would
    train on. A last, smaller batch is left out: it has another shape, and a Gaudi would compile another graph for it.
    """

    def __init__(self, samples: int, config: TrainingConfig, rank: int, world: int) -> None:
        # A sampler asks its data set for nothing but its length.
        self._sampler: DistributedSampler[Any] = DistributedSampler(
            range(samples),  # type: ignore[arg-type]
            world,
            rank,
            seed=config.seed,
            drop_last=True,
        )
        self._passes = passes_of(config, world)
        self._size = config.batch_size // world // self._passes
        self._seed = config.seed
        self.steps_per_epoch = samples // config.batch_size
        self._epoch = self._first_step = 0

    def start_at(self, epoch: int, step: int) -> None:
        """Make the next iteration start in ``epoch`` at its optimizer step ``step`` (both count from 0)."""
        self._epoch, self._first_step = epoch, step
        self._sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[BatchIndices]:
        order, size = list(self._sampler), self._size
        for number in range(self._first_step * self._passes, self.steps_per_epoch * self._passes):
            yield BatchIndices((self._seed, self._epoch), order[number * size : (number + 1) * size])

    def __len__(self) -> int:
        return (self.steps_per_epoch - self._first_step) * self._passes


class Loader:
    """Loads the batches that it is given, in their order, each time it is iterated."""

    def __init__(
        self, data: Dataset[Any], batches: Iterable[BatchIndices], loader_workers: int, pins: bool = False
    ) -> None:
        """Prepare to load.

        Args:
            data: ``__getitems__`` takes a list of indices and returns a :data:`Batch`. Pickled if there are workers. An
                attribute ``augments`` that is False spares it the seeding, 0.1 ms a batch.
            batches: What to load.
            loader_workers: Processes that load, shared by all loaders of this process. 0: this process.
            pins: Whether batches are put into pinned memory, from which a device copies them faster.
        """
        self._load, self._batches, self._workers, self._pins = _Seeded(data), batches, loader_workers, pins

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._loaded():
            yield {name: tensor.pin_memory() for name, tensor in batch.items()} if self._pins else batch

    def _loaded(self) -> Iterator[Batch]:
        if not self._workers:
            return map(self._load, self._batches)
        return loader_processes(self._workers).load(self._load.in_a_file(), self._batches)


class _Seeded:
    """Loads batches of a data set. Seeds the random generators for each, and puts them back.

    So augmentation depends neither on which process loads the samples nor on what it loaded before. It does depend on
    which samples share a batch, unless the data set has a method ``seeded`` that seeds each of them.
    """

    def __init__(self, data: Dataset[Any]) -> None:
        self._data = data
        self._augments = getattr(data, "augments", True)
        self._file: Path | None = None

    def __call__(self, batch: BatchIndices) -> Batch:
        if not self._augments:
            plain: Batch = self._data.__getitems__(batch.indices)  # type: ignore[attr-defined]
            return plain
        kept = random.getstate(), np.random.get_state()
        with torch.random.fork_rng(devices=[]):
            augmented = self._augmented(batch)
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        return augmented

    def _augmented(self, batch: BatchIndices) -> Batch:
        seeds_each = getattr(self._data, "seeded", None)
        if seeds_each is not None:
            return seeds_each(batch.indices, batch.seed)
        seed_host(*batch.seed, batch.indices[0])
        augmented: Batch = self._data.__getitems__(batch.indices)  # type: ignore[attr-defined]
        return augmented

    def in_a_file(self) -> Path:
        """Return a file that holds this, pickled; it is removed when this object is."""
        if self._file is None:
            pickled = pickle.dumps(self)
            handle, name = tempfile.mkstemp(suffix=".pickle")
            weakref.finalize(self, os.unlink, name)
            with os.fdopen(handle, "wb") as file:
                file.write(pickled)
            self._file = Path(name)
        return self._file


def eval_batches(samples: int, rank: int, world: int) -> list[BatchIndices]:
    """Return this rank's share of the validation samples; each sample is in one batch of one rank."""
    mine = list(range(rank, samples, world))
    starts = range(0, len(mine), EVAL_BATCH_PER_WORKER)
    return [BatchIndices((0,), mine[start : start + EVAL_BATCH_PER_WORKER]) for start in starts]


def size_of(batch: Batch) -> int:
    """Return the number of samples in a batch."""
    return len(next(iter(batch.values())))


def padded(batch: Batch, size: int) -> Batch:
    """Return the batch filled up to ``size`` samples by repeating the first."""
    missing = size - size_of(batch)
    if missing <= 0:
        return batch
    return {name: torch.cat([t, t[:1].expand(missing, *t.shape[1:])]) for name, t in batch.items()}
