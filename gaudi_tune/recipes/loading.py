"""Chooses the samples that a worker trains on, their order and batches, and loads them."""

from __future__ import annotations

import os
import pickle
import random
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, DistributedSampler, Sampler

from gaudi_tune.recipes.loader_processes import loader_processes
from gaudi_tune.recipes.training_config import TrainingConfig, num_micro_batches
from gaudi_tune.training.fresh_start import seed_host

Item = TypeVar("Item")
Batch = dict[str, torch.Tensor]
"""The tensors of a batch, with samples in the first dimension. A classifier's ``labels`` have shape (n,)."""


class BatchIndices(NamedTuple):
    """The samples of one micro-batch of a worker."""

    seed: tuple[int, ...]
    """Seed and epoch, for what is random in loading them."""
    indices: list[int]
    length: int | None = None
    """What the samples are padded to; None if all have one shape."""


class TrainSampler(Sampler[BatchIndices]):
    """Yields this rank's micro-batches of an epoch, from any step on.

    The batches of all workers together depend only on the seed and the epoch, not on the number of workers. A last,
    smaller batch is left out, because a Gaudi would compile another graph for its shape.
    """

    def __init__(
        self,
        samples: int,
        config: TrainingConfig,
        rank: int,
        world: int,
        padded_to: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Choose the order.

        Args:
            samples: The number of training samples.
            config: The configuration, for the seed and the size of a batch.
            rank: The worker's rank.
            world: The number of workers.
            padded_to: The length that each sample is padded to, of shape (samples,). The samples of a batch then have
                one length, as far as they can. None: batches are drawn from all samples alike.
        """
        # A sampler uses only the length of its data set, and a range has that.
        self._sampler: DistributedSampler[Any] = DistributedSampler(
            range(samples),  # type: ignore[arg-type]
            world,
            rank,
            seed=config.seed,
            drop_last=True,
        )
        self._micro_batches = num_micro_batches(config, world)
        self._size = config.batch_size // world // self._micro_batches
        self._batch_size, self._rank, self._world = config.batch_size, rank, world
        self._padded_to = padded_to
        self._seed = config.seed
        self.steps_per_epoch = samples // config.batch_size
        self._epoch = self._first_step = 0

    def start_at(self, epoch: int, step: int) -> None:
        """Make the next iteration start in ``epoch`` at its optimizer step ``step`` (both count from 0)."""
        self._epoch, self._first_step = epoch, step
        self._sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[BatchIndices]:
        for length, samples in self._steps()[self._first_step :]:
            for start in range(0, len(samples), self._size):
                yield BatchIndices((self._seed, self._epoch), samples[start : start + self._size], length)

    def _steps(self) -> list[tuple[int | None, list[int]]]:
        """Return this rank's samples of each step of the epoch, and the length that they are padded to."""
        if self._padded_to is not None:
            batches = self._batches_by_length(self._padded_to)
            return [(length, samples[self._rank :: self._world]) for length, samples in batches]
        order, share = list(self._sampler), self._size * self._micro_batches
        return [(None, order[step * share : (step + 1) * share]) for step in range(self.steps_per_epoch)]

    def _batches_by_length(self, padded_to: npt.NDArray[np.int64]) -> list[tuple[int, list[int]]]:
        """Return the batches of the epoch, each of all workers, with the length that their samples are padded to."""
        generator = np.random.default_rng((self._seed, self._epoch))
        shuffled = generator.permutation(len(padded_to))
        batches: list[tuple[int, list[int]]] = []
        remainder: list[int] = []
        for length in np.unique(padded_to):  # what does not fill a batch is padded to the next length
            samples = remainder + shuffled[padded_to[shuffled] == length].tolist()
            whole_batches = len(samples) // self._batch_size * self._batch_size
            batches += [
                (int(length), samples[n : n + self._batch_size]) for n in range(0, whole_batches, self._batch_size)
            ]
            remainder = samples[whole_batches:]
        return [batches[number] for number in generator.permutation(len(batches))]

    def __len__(self) -> int:
        return (self.steps_per_epoch - self._first_step) * self._micro_batches


class Loader:
    """Loads batches of a data set in the given order; it can be iterated again and again."""

    def __init__(
        self,
        data: Dataset[Any],
        batches: Iterable[BatchIndices],
        loader_workers: int,
        pins: bool = False,
        passes: int = 0,
    ) -> None:
        """Prepare to load.

        Args:
            data: The data set. ``__getitems__`` takes a list of indices and returns a :data:`Batch`. It is pickled if
                there are loader workers. If it has an attribute ``augments`` that is False, random generators are not
                seeded for it, which saves 0.1 ms a batch.
            batches: The batches to load.
            loader_workers: Number of processes that load, shared by all loaders of this process. 0: this process loads.
            pins: Whether to put batches into pinned memory, from which a device copies them faster.
            passes: How many batches rank 0 has, which has the most.
        """
        self._load, self._batches, self._workers, self._pins = _Seeded(data), batches, loader_workers, pins
        self.passes = passes

    @property
    def is_isolated(self) -> bool:
        """Whether loading leaves the random generators of this process alone, so that a thread may load."""
        return self._workers > 0 or not self._load.augments

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._loaded():
            if self._pins:
                yield {name: tensor.pin_memory() for name, tensor in batch.items()}
            else:
                yield batch

    def _loaded(self) -> Iterator[Batch]:
        if not self._workers:
            return map(self._load, self._batches)
        return loader_processes(self._workers).load(self._load.pickle_file(), self._batches)


class _Seeded:
    """Loads batches of a data set. It seeds the random generators for each batch, and restores them afterwards.

    So augmentation depends neither on which process loads the samples nor on what it loaded before. It depends on which
    samples share a batch, unless the data set has a method ``seeded`` that seeds torch for each sample and draws from
    torch alone.
    """

    def __init__(self, data: Dataset[Any]) -> None:
        self._data = data
        self.augments = getattr(data, "augments", True)
        self._file: Path | None = None

    def __call__(self, batch: BatchIndices) -> Batch:
        if not self.augments:
            return self._samples(batch)
        with torch.random.fork_rng(devices=[]):
            load_seeded = getattr(self._data, "seeded", None)
            if load_seeded is not None:
                return load_seeded(batch.indices, batch.seed)
            states = random.getstate(), np.random.get_state()
            seed_host(*batch.seed, batch.indices[0])
            samples = self._samples(batch)
        random.setstate(states[0])
        np.random.set_state(states[1])
        return samples

    def _samples(self, batch: BatchIndices) -> Batch:
        length = () if batch.length is None else (batch.length,)
        samples: Batch = self._data.__getitems__(batch.indices, *length)  # type: ignore[attr-defined]
        return samples

    def pickle_file(self) -> Path:
        """Return a file with this object, pickled; the file is removed together with the object."""
        if self._file is None:
            pickled = pickle.dumps(self)
            handle, name = tempfile.mkstemp(suffix=".pickle")
            weakref.finalize(self, os.unlink, name)
            with os.fdopen(handle, "wb") as file:
                file.write(pickled)
            self._file = Path(name)
        return self._file


def one_ahead(take: Callable[[], Item | None]) -> Iterator[Item]:
    """Yield what ``take`` returns until it is None; a thread takes the next item while the caller uses the last one."""
    with ThreadPoolExecutor(1, thread_name_prefix="next-batch") as thread:
        coming = thread.submit(take)
        while (item := coming.result()) is not None:
            coming = thread.submit(take)
            yield item


def eval_batches(
    samples: int, rank: int, world: int, size: int, padded_to: npt.NDArray[np.int64] | None = None
) -> list[BatchIndices]:
    """Return this rank's batches of ``size`` validation samples. Each sample is in exactly one batch of one rank.

    With ``padded_to``, the length that each sample is padded to, a batch has samples of like length.
    """
    own_samples = list(range(rank, samples, world))
    if padded_to is not None:
        own_samples.sort(key=lambda sample: padded_to[sample])
    batches = [own_samples[start : start + size] for start in range(0, len(own_samples), size)]
    if padded_to is None:
        return [BatchIndices((0,), batch) for batch in batches]
    return [BatchIndices((0,), batch, int(padded_to[batch].max())) for batch in batches]


def size_of(batch: Batch) -> int:
    """Return the number of samples in a batch."""
    return len(next(iter(batch.values())))


def padded(batch: Batch, size: int) -> Batch:
    """Return the batch, filled up to ``size`` samples by repeating the first one."""
    missing = size - size_of(batch)
    if missing <= 0:
        return batch
    return {name: torch.cat([t, t[:1].expand(missing, *t.shape[1:])]) for name, t in batch.items()}
