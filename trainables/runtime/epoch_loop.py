"""The one epoch loop: data-parallel training of a classifier, exact metrics, a report and a checkpoint per epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from ray.train.torch import prepare_model
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from trainables.runtime import metrics, names
from trainables.runtime.checkpoint import read_state, write_state
from trainables.runtime.contract import get_checkpoint, get_context, report
from trainables.runtime.device import autocast, worker_device
from trainables.runtime.fresh_start import seed_everything

Batch = dict[str, torch.Tensor]
"""Tensors of one batch, first dimension the samples; ``labels`` holds class indices of shape (n,)."""

EVAL_BATCH_PER_WORKER = 64
"""Validation samples in one forward pass of a worker; without gradients more fit than in training."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a model's train loop gives the epoch loop."""

    model: nn.Module
    """On the CPU, not wrapped."""
    forward: Callable[[nn.Module, Batch], torch.Tensor]
    """Returns logits of shape (n, classes)."""
    train_data: Dataset[Any]
    """``__getitems__`` takes a list of indices and returns a :data:`Batch`."""
    val_data: Dataset[Any]
    """Likewise."""
    batch_size: int
    """Samples in one optimizer step, split over the workers."""
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    """Makes the optimizer of the given parameters."""
    warmup: float = 0.0
    """Share of all optimizer steps in which the learning rate rises linearly to its peak. 0 means none."""
    describe: Callable[[Path], None] | None = None
    """Writes to a checkpoint what is needed to build the model again besides its state."""


def run_epochs(task: Task, *, epochs: int, seed: int) -> None:
    """Train ``task`` for ``epochs`` passes, report after each, go on from the trial's checkpoint if it has one.

    What is random in an epoch follows from (seed, rank, epoch) alone, so a trial that goes on from a checkpoint gives
    the numbers of one that was never interrupted.

    Raises:
        ValueError: The batch cannot be split evenly over the workers, or is larger than the data.
    """
    trial = _Trial(task, epochs, seed)
    first_step_at: float | None = None
    for epoch in range(trial.epochs_done + 1, epochs + 1):
        started = time.perf_counter()
        first_step_at = first_step_at or time.time()
        train_loss = trial.train(epoch)
        trained = time.perf_counter()
        val_loss, val_accuracy = trial.evaluate() if math.isfinite(train_loss) else (math.nan, math.nan)
        evaluated = time.perf_counter()
        trial.epochs_done = epoch
        report(
            {
                names.EPOCH: epoch,
                names.TRAIN_LOSS: train_loss,
                names.VAL_LOSS: val_loss,
                names.VAL_ACCURACY: val_accuracy,
                names.LEARNING_RATE: trial.schedule.get_last_lr()[0],
                names.SAMPLES_PER_SECOND: trial.steps_per_epoch * task.batch_size / (trained - started),
                names.TRAIN_SECONDS: trained - started,
                names.EVAL_SECONDS: evaluated - trained,
                names.FIRST_STEP_AT: first_step_at,
            },
            save=trial.save,
        )


class _Trial:
    """The objects of one trial on one worker."""

    def __init__(self, task: Task, epochs: int, seed: int) -> None:
        context = get_context()
        self.rank, self.world = context.get_world_rank(), context.get_world_size()
        self.task, self.seed, self.device = task, seed, worker_device()
        self.model = self._on_all_workers(task.model)
        self.loader = self._train_loader()
        self.steps_per_epoch = len(self.loader)
        self.optimizer = task.optimizer(self.model.parameters())
        self.schedule: LRScheduler = LambdaLR(
            self.optimizer, partial(warmup_factor, warmup_steps=round(task.warmup * epochs * self.steps_per_epoch))
        )
        self.epochs_done = 0
        self._restore()

    @property
    def bare_model(self) -> nn.Module:
        """The model without the data-parallel wrapper."""
        return cast(nn.Module, self.model.module) if isinstance(self.model, DistributedDataParallel) else self.model

    def train(self, epoch: int) -> float:
        """Train one epoch and return the mean loss over all ranks."""
        seed_everything(self.seed, self.rank, epoch)
        cast("DistributedSampler[Any]", self.loader.sampler).set_epoch(epoch)
        self.model.train()
        loss_sum = torch.zeros((), device=self.device)  # stays on the device: reading it would wait for every step
        for batch in self._batches(self.loader):
            with autocast(self.device):
                loss = F.cross_entropy(self.task.forward(self.model, batch).float(), batch["labels"])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            loss_sum += loss.detach()
        return float(metrics.sum_over_ranks(loss_sum)) / (self.steps_per_epoch * self.world)

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float]:
        """Return mean loss and accuracy over all validation samples; the accuracy is NaN but on rank 0."""
        model = self.bare_model.eval()  # not the wrapper, which would synchronise ranks that have unequal batches
        size = len(self.task.val_data)  # type: ignore[arg-type]
        mine = range(self.rank, size, self.world)
        loader = DataLoader(self.task.val_data, EVAL_BATCH_PER_WORKER, sampler=mine, collate_fn=_as_it_is)
        loss_sum = torch.zeros((), device=self.device)
        predicted, labels = [], []
        for batch in self._batches(loader):
            with autocast(self.device):
                logits = self.task.forward(model, batch).float()
            loss_sum += F.cross_entropy(logits, batch["labels"], reduction="sum")
            predicted.append(logits.argmax(dim=1))
            labels.append(batch["labels"])
        nothing = torch.empty(0, dtype=torch.int64, device=self.device)  # of a rank that got no sample
        predictions = metrics.gather_over_ranks(torch.cat([nothing, *predicted]))
        references = metrics.gather_over_ranks(torch.cat([nothing, *labels]))
        loss = float(metrics.sum_over_ranks(loss_sum)) / size
        if self.rank != 0:
            return loss, math.nan
        accuracy = metrics.accuracy_metric().compute(predictions=predictions.cpu(), references=references.cpu())
        return loss, float(accuracy["accuracy"])

    def save(self, directory: Path) -> None:
        """Write everything the trial needs to go on, and to be loaded elsewhere, to ``directory``."""
        if self.task.describe is not None:
            self.task.describe(directory)
        write_state(
            directory,
            {
                "model": self.bare_model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "epochs_done": self.epochs_done,
            },
        )

    def _restore(self) -> None:
        checkpoint = get_checkpoint()
        if checkpoint is None:
            return
        with checkpoint.as_directory() as directory:
            state = read_state(Path(directory))
        self.bare_model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.epochs_done = state["epochs_done"]

    def _on_all_workers(self, model: nn.Module) -> nn.Module:
        if self.world == 1:
            return model.to(self.device)
        settings = {"gradient_as_bucket_view": True, "broadcast_buffers": False}
        return cast(nn.Module, prepare_model(model, parallel_strategy_kwargs=settings))

    def _train_loader(self) -> DataLoader[Any]:
        batch_size, size = self.task.batch_size, len(self.task.train_data)  # type: ignore[arg-type]
        if batch_size % self.world:
            raise ValueError(
                f"batch_size must be a multiple of the {self.world} workers that share it, but got {batch_size}"
            )
        if batch_size > size:
            raise ValueError(f"batch_size must be at most the {size} training samples, but got {batch_size}")
        sampler: DistributedSampler[Any] = DistributedSampler(
            self.task.train_data, self.world, self.rank, shuffle=True, seed=self.seed, drop_last=True
        )
        return DataLoader(
            self.task.train_data,
            batch_size // self.world,
            sampler=sampler,
            drop_last=True,  # the last, smaller batch would be another shape, and another graph to compile
            collate_fn=_as_it_is,
        )

    def _batches(self, loader: DataLoader[Any]) -> Iterator[Batch]:
        for batch in loader:
            yield {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}


def warmup_factor(step: int, warmup_steps: int) -> float:
    """Return the share of the peak learning rate at ``step`` (from 0): a linear rise, then constant."""
    return min(1.0, (step + 1) / (warmup_steps + 1))


def _as_it_is(batch: Any) -> Any:
    return batch  # __getitems__ has made the batch already
