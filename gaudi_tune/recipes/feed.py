"""The batches of one trial on one worker, on their way to its device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset

from gaudi_tune.devices.device import DeviceType
from gaudi_tune.recipes.loading import Batch, BatchIndices, Loader, eval_batches, one_ahead, padded, size_of
from gaudi_tune.recipes.task import Task
from gaudi_tune.recipes.training_config import TrainingConfig


class Worker(NamedTuple):
    """A worker of a trial."""

    rank: int
    world: int
    """How many workers train the trial."""
    device: torch.device
    device_type: DeviceType


class Feed:
    """Loads what a trial trains on and is scored on, and copies it to the worker's device."""

    def __init__(self, task: Task, config: TrainingConfig, worker: Worker) -> None:
        self.task, self.config, self.worker = task, config, worker
        by_default = worker.device.type != "cpu" and config.mode_on(worker.device_type).name != "lazy"
        self.copies_ahead = by_default if config.copy_ahead == "auto" else config.copy_ahead

    def loader(self, data: Dataset[Any], batches: Iterable[BatchIndices], passes: int = 0) -> Loader:
        """Return a loader of these batches."""
        processes = 0 if self.config.loader_workers == "auto" else self.config.loader_workers  # a plan has a number
        return Loader(data, batches, processes, self.worker.device_type.pins_memory, passes)

    def eval_loader(self, data: Dataset[Any]) -> Loader:
        """Return a loader of this worker's share of data that are scored."""
        padded_to = getattr(data, "padded_to", None)
        samples, world = len(data), self.worker.world  # type: ignore[arg-type]
        if self.task.sharded and samples < world:
            raise ValueError(f"val_samples must be at least the {world} workers of the trial, but got {samples}")
        batches = partial(eval_batches, samples, world=world, size=self.config.eval_batch, padded_to=padded_to)
        return self.loader(data, batches(self.worker.rank), passes=len(batches(0)))

    def on_device(self, loader: Loader, pad_to: int = 0) -> Iterator[tuple[Batch, int]]:
        """Yield batches on the device, filled up to ``pad_to`` samples, and the number of samples before that.

        With ``copy_ahead``, and where loading leaves this process's random generators alone, a thread takes the next
        batch from the loader and copies it while the device computes.
        """
        batches = iter(loader)

        def copy_next() -> tuple[Batch, int] | None:
            batch = next(batches, None)
            if batch is None:
                return None
            copied = padded(batch, pad_to)
            return {name: t.to(self.worker.device, non_blocking=True) for name, t in copied.items()}, size_of(batch)

        for batch, size in one_ahead(copy_next) if self.copies_ahead and loader.is_isolated else iter(copy_next, None):
            yield (self.task.prepare(batch) if self.task.prepare else batch), size
