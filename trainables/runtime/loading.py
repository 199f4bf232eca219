"""Which samples a worker trains on, in which order, and how they are loaded."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler

from trainables.runtime.fresh_start import seed_host

Batch = dict[str, torch.Tensor]
"""Tensors of one batch, first dimension the samples; ``labels`` holds class indices of shape (n,)."""

EVAL_BATCH_PER_WORKER = 64
"""Validation samples in one forward pass of a worker; without gradients more fit than in training."""

NO_LABEL = -100
"""The label of a sample that only fills a batch; torch's losses leave it out (``ignore_index``)."""


class Draw(NamedTuple):
    """The samples of one pass, and what seeds whatever is random in loading them."""

    seed: tuple[int, ...]
    indices: list[int]


class TrainDraws(Sampler[Draw]):
    """This rank's passes of an epoch, from any step on.

    The global batches depend on the seed and the epoch alone: two workers train on the batches of one, each on its
    half. A last, smaller batch is left out: it would be another shape, and on a Gaudi another graph to compile.
    """

    def __init__(self, size: int, batch_size: int, accumulation: int, rank: int, world: int, seed: int) -> None:
        # Only the length of its data set counts for a sampler.
        self._sampler: DistributedSampler[Any] = DistributedSampler(
            range(size),  # type: ignore[arg-type]
            world,
            rank,
            seed=seed,
            drop_last=True,
        )
        self._share, self._accumulation, self._seed = batch_size // world, accumulation, (seed, rank)
        self.steps_per_epoch = size // batch_size
        self._epoch = self._first_step = 0

    def start_at(self, epoch: int, step: int) -> None:
        """Let the next iteration be that of ``epoch``, from optimizer step ``step`` of it on (both from 0)."""
        self._epoch, self._first_step = epoch, step
        self._sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Draw]:
        order = list(self._sampler)
        size = self._share // self._accumulation
        for number in range(self._first_step * self._accumulation, self.steps_per_epoch * self._accumulation):
            yield Draw((*self._seed, self._epoch, number), order[number * size : (number + 1) * size])

    def __len__(self) -> int:
        return (self.steps_per_epoch - self._first_step) * self._accumulation


class _Drawn(Dataset[Any]):
    """Loads a draw's samples with random generators of their own.

    So augmentation depends neither on which process loads the samples nor on what was loaded before them.
    """

    def __init__(self, data: Dataset[Any]) -> None:
        self._data = data
        self._augments = getattr(data, "augments", True)

    def __getitems__(self, draw: Draw) -> Batch:
        if not self._augments:
            plain: Batch = self._data.__getitems__(draw.indices)  # type: ignore[attr-defined]
            return plain
        kept = random.getstate(), np.random.get_state()
        with torch.random.fork_rng(devices=[]):
            seed_host(*draw.seed)
            batch: Batch = self._data.__getitems__(draw.indices)  # type: ignore[attr-defined]
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        return batch


def make_loader(data: Dataset[Any], draws: Sampler[Draw] | Sequence[Draw], loader_workers: int) -> DataLoader[Any]:
    """Return a loader of ``draws``.

    Args:
        data: ``__getitems__`` takes a list of indices and returns a :data:`Batch`. Pickled if there are workers. An
            attribute ``augments`` that is False spares it the seeding, 0.1 ms a batch.
        draws: What to load, in this order.
        loader_workers: Processes that load. 0: this process.
    """
    return DataLoader(
        _Drawn(data),
        batch_sampler=draws,  # type: ignore[arg-type]
        num_workers=loader_workers,
        persistent_workers=loader_workers > 0,
        # A process must not be forked once it has an HPU (habana's rule); forkserver starts children from a clean one.
        multiprocessing_context="forkserver" if loader_workers else None,
        collate_fn=_as_it_is,
        # Of its own: each new iterator draws a number, which would shift the model's dropout after a resumption.
        generator=torch.Generator(),
        pin_memory=torch.cuda.is_available(),
    )


def eval_draws(size: int, rank: int, world: int) -> list[Draw]:
    """Return this rank's share of all validation samples, each of which one rank has once."""
    mine = list(range(rank, size, world))
    starts = range(0, len(mine), EVAL_BATCH_PER_WORKER)
    return [Draw((0,), mine[start : start + EVAL_BATCH_PER_WORKER]) for start in starts]


def padded(batch: Batch, size: int) -> Batch:
    """Return the batch filled up to ``size`` samples: the first again and again, with :data:`NO_LABEL`."""
    missing = size - len(batch["labels"])
    if missing <= 0:
        return batch
    filled = {name: torch.cat([t, t[:1].expand(missing, *t.shape[1:])]) for name, t in batch.items()}
    filled["labels"][-missing:] = NO_LABEL
    return filled


def _as_it_is(batch: Any) -> Any:
    return batch  # __getitems__ has made the batch already
