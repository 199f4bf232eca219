"""The one training loop: data-parallel training of a classifier, exact metrics, a report and a checkpoint at each end
of an epoch or of so many steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import Dataset

from trainables.runtime import device as devices
from trainables.runtime import metrics, names
from trainables.runtime.checkpoint import read_state, write_state
from trainables.runtime.contract import get_checkpoint, get_context, report
from trainables.runtime.fresh_start import seed_everything
from trainables.runtime.loading import (
    EVAL_BATCH_PER_WORKER,
    NO_LABEL,
    Batch,
    TrainDraws,
    eval_draws,
    make_loader,
    padded,
)
from trainables.runtime.schedules import Schedule
from trainables.runtime.sync_batch_norm import synchronise_batch_norm
from trainables.runtime.training_config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a model's train loop gives the training loop."""

    model: nn.Module
    """On the CPU, not wrapped."""
    forward: Callable[[nn.Module, Batch], torch.Tensor]
    """Returns logits of shape (n, classes)."""
    train_data: Dataset[Any]
    """``__getitems__`` takes a list of indices and returns a :data:`Batch`. Pickles where loader workers are used."""
    val_data: Dataset[Any]
    """Likewise."""
    schedule: Schedule = field(default_factory=Schedule)
    """Of the learning rate."""
    describe: Callable[[Path], None] | None = None
    """Writes to a checkpoint what is needed to build the model again besides its state."""


def train(task: Task, config: TrainingConfig) -> None:
    """Train ``task`` for its budget, report after each epoch (or ``eval_every`` steps), go on from a checkpoint.

    What is random between two reports follows from (seed, rank, steps done) and from the batches' own seeds, so a trial
    that goes on from a checkpoint gives the numbers of one that was never interrupted.

    Raises:
        ValueError: The batch cannot be split evenly, or is larger than the data.
    """
    trial = _Trial(task, config)
    first_step_at = time.time()
    while trial.steps_done < trial.steps:
        trained = trial.train_to_next_report()
        began = time.perf_counter()
        val_loss, val_accuracy = trial.evaluate() if math.isfinite(trained.loss) else (math.nan, math.nan)
        epoch = trial.steps_done / trial.steps_per_epoch
        report(
            {
                names.EPOCH: round(epoch, 3) if config.steps else round(epoch),
                names.STEP: trial.steps_done,
                names.TRAIN_LOSS: trained.loss,
                names.VAL_LOSS: val_loss,
                names.VAL_ACCURACY: val_accuracy,
                names.LEARNING_RATE: trial.schedule.get_last_lr()[0],
                names.SAMPLES_PER_SECOND: trained.samples_per_s,
                names.TRAIN_SECONDS: trained.seconds,
                names.COMPILE_SECONDS: trained.compile_s,
                names.EVAL_SECONDS: time.perf_counter() - began,
                names.FIRST_STEP_AT: first_step_at,
            },
            save=trial.save,
        )


class _Trained(NamedTuple):
    """What came of the steps between two reports."""

    loss: float
    """Mean over all steps and ranks."""
    seconds: float
    """Without ``compile_s``."""
    compile_s: float
    """Seconds that the trial's first step took more than the others; 0 in later reports."""
    samples_per_s: float
    """Of all ranks, the trial's first step left out."""


class _Trial:
    """The objects of one trial on one worker."""

    def __init__(self, task: Task, config: TrainingConfig) -> None:
        context = get_context()
        self.rank, self.world = context.get_world_rank(), context.get_world_size()
        self.task, self.config, self.device = task, config, devices.worker_device()
        size = len(task.train_data)  # type: ignore[arg-type]
        check_batch(config, self.world, size)
        self.draws = TrainDraws(size, config.batch_size, config.accumulation, self.rank, self.world, config.seed)
        self.steps_per_epoch = self.draws.steps_per_epoch
        self.steps = config.steps or config.epochs * self.steps_per_epoch
        self.steps_done = 0
        self.bare_model = task.model
        self.model = self._on_all_workers(task.model)
        self.optimizer = config.make_optimizer(self.bare_model.parameters(), self.device)
        self.schedule: LRScheduler = LambdaLR(
            self.optimizer, lambda step: task.schedule.factor(step, self.steps, self.steps_per_epoch)
        )
        self._restore()
        self._started_at = self.steps_done
        self.train_loader = make_loader(task.train_data, self.draws, config.loader_workers)
        val_size = len(task.val_data)  # type: ignore[arg-type]
        self.val_loader = make_loader(task.val_data, eval_draws(val_size, self.rank, self.world), config.loader_workers)
        self._batches = self._all_batches()
        compiled = devices.compiler(self.device) if config.compile else _not_compiled
        self.train_model, self.eval_model = compiled(self.model), compiled(self.bare_model)

    def train_to_next_report(self) -> _Trained:
        """Train to the end of the epoch, or ``eval_every`` steps."""
        seed_everything(self.config.seed, self.rank, self.steps_done)
        self.model.train()
        first, between_reports = self.steps_done, self.config.eval_every or self.steps_per_epoch
        end = min(self.steps, first + between_reports)
        loss_sum = torch.zeros((), device=self.device)  # stays on the device: reading it would wait for every step
        began = after_first = time.perf_counter()
        for _ in range(first, end):
            loss_sum += self._step()
            self.steps_done += 1
            if self.steps_done == self._started_at + 1:
                devices.synchronize(self.device)
                after_first = time.perf_counter()
        loss = float(metrics.sum_over_ranks(loss_sum)) / ((end - first) * self.world)
        ended = time.perf_counter()
        return self._timed(loss, end - first, began, after_first, ended)

    def _timed(self, loss: float, steps: int, began: float, after_first: float, ended: float) -> _Trained:
        first_step_s = after_first - began  # 0 unless the trial's first step is among them
        others = steps - 1 if first_step_s and steps > 1 else steps
        per_step = (ended - (after_first if others < steps else began)) / others
        compile_s = max(0.0, first_step_s - per_step)
        return _Trained(loss, ended - began - compile_s, compile_s, self.config.batch_size / per_step)

    def _step(self) -> torch.Tensor:
        """Take one optimizer step and return the mean loss of this rank's samples."""
        loss_sum = torch.zeros((), device=self.device)
        for part in range(self.config.accumulation):
            batch = next(self._batches)
            with self._synchronised_in(part):
                with devices.autocast(self.device, self.config.mixed_precision):
                    logits = self.task.forward(self.train_model, batch).float()
                    loss = F.cross_entropy(logits, batch["labels"], label_smoothing=self.config.label_smoothing)
                    loss = loss / self.config.accumulation
                loss.backward()
                devices.mark_step(self.device)
            loss_sum += loss.detach()
        if self.config.clip_norm:
            devices.clip_gradients(self.device, self.bare_model.parameters(), self.config.clip_norm)
        self.optimizer.step()
        devices.mark_step(self.device)
        self.optimizer.zero_grad()
        self.schedule.step()
        return loss_sum

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float]:
        """Return mean loss and accuracy over all validation samples; the accuracy is NaN but on rank 0."""
        self.bare_model.eval()  # not the wrapper, which would synchronise ranks that have unequal batches
        self._share_buffers()
        size = len(self.task.val_data)  # type: ignore[arg-type]
        loss_sum = torch.zeros((), device=self.device)
        predicted, labels = [], []
        for batch in self._on_device(self._filled(self.val_loader)):
            with devices.autocast(self.device, self.config.mixed_precision):
                logits = self.task.forward(self.eval_model, batch).float()
            loss_sum += F.cross_entropy(logits, batch["labels"], reduction="sum", ignore_index=NO_LABEL)
            predicted.append(logits.argmax(dim=1))
            labels.append(batch["labels"])
        nothing = torch.empty(0, dtype=torch.int64, device=self.device)  # of a rank that got no sample
        predictions = metrics.gather_over_ranks(torch.cat([nothing, *predicted]))
        references = metrics.gather_over_ranks(torch.cat([nothing, *labels]))
        loss = float(metrics.sum_over_ranks(loss_sum)) / size
        if self.rank != 0:
            return loss, math.nan
        predictions, references = predictions.cpu(), references.cpu()
        real = references != NO_LABEL
        accuracy = metrics.accuracy_metric().compute(predictions=predictions[real], references=references[real])
        return loss, float(accuracy["accuracy"])

    def save(self, directory: Path) -> None:
        """Write everything the trial needs to go on, and to be loaded elsewhere, to ``directory``."""
        if self.task.describe is not None:
            self.task.describe(directory)
        state = {name: part.state_dict() for name, part in self._parts().items()}
        write_state(directory, {**state, "steps_done": self.steps_done})

    def _restore(self) -> None:
        checkpoint = get_checkpoint()
        if checkpoint is None:
            return
        with checkpoint.as_directory() as directory:
            state = read_state(Path(directory))
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.steps_done = state["steps_done"]

    def _parts(self) -> dict[str, Any]:
        return {"model": self.bare_model, "optimizer": self.optimizer, "schedule": self.schedule}

    def _on_all_workers(self, model: nn.Module) -> nn.Module:
        if self.world == 1:
            return model.to(self.device)
        from ray.train.torch import prepare_model  # here, so that a trained model can be loaded without Ray

        if self.config.sync_batch_norm:
            synchronise_batch_norm(model)
        settings = devices.data_parallel_settings(self.device)
        return cast(nn.Module, prepare_model(model, parallel_strategy_kwargs=settings))

    def _synchronised_in(self, part: int) -> AbstractContextManager[None]:
        """Return what one pass runs in: workers need each other's gradients in the last pass of a step only."""
        if part == self.config.accumulation - 1 or not isinstance(self.model, DistributedDataParallel):
            return nullcontext()
        return cast("AbstractContextManager[None]", self.model.no_sync())

    def _share_buffers(self) -> None:
        """Give all ranks the running statistics of rank 0, which are those that a checkpoint holds."""
        if self.world > 1:
            for buffer in self.bare_model.buffers():
                if buffer.is_floating_point():
                    dist.broadcast(buffer, src=0)

    def _all_batches(self) -> Iterator[Batch]:
        """Yield the passes from where the trial is, epoch after epoch."""
        position = self.steps_done
        while True:
            epoch, step = divmod(position, self.steps_per_epoch)
            self.draws.start_at(epoch, step)
            yield from self._on_device(self.train_loader)
            position += self.steps_per_epoch - step

    def _filled(self, batches: Any) -> Iterator[Batch]:
        """Yield validation batches of one shape where another would be compiled anew."""
        static = self.config.compile or devices.wants_static_shapes(self.device)
        for batch in batches:
            yield padded(batch, EVAL_BATCH_PER_WORKER) if static else batch

    def _on_device(self, batches: Any) -> Iterator[Batch]:
        for batch in batches:
            yield {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}


def _not_compiled(model: nn.Module) -> nn.Module:
    return model


def check_batch(config: TrainingConfig, workers: int, samples: int) -> None:
    """See that a batch can be split and filled.

    Args:
        config: Says how large a batch is.
        workers: Among which it is split.
        samples: How many there are to train on.

    Raises:
        ValueError: It cannot; says why.
    """
    size, parts = config.batch_size, workers * config.accumulation
    if size % parts:
        raise ValueError(
            f"batch_size must be a multiple of the {workers} worker(s) times the accumulation of {config.accumulation} "
            f"that share it, but got {size}"
        )
    if size > samples:
        raise ValueError(
            f"batch_size must be at most the {samples} training samples, but got {size}; --set batch_size=N fixes "
            f"it for all trials"
        )
