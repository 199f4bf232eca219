"""The training loop that all models share.

It trains data-parallel, computes metrics that count each sample once, and reports (and saves a checkpoint, if one is
requested) after each epoch or a number of steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gaudi_tune.base import names
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.private.torch import expect_many_graphs
from gaudi_tune.recipes import metrics
from gaudi_tune.recipes.compiling import Compiling
from gaudi_tune.recipes.evaluation import Evaluation
from gaudi_tune.recipes.feed import Feed, Worker
from gaudi_tune.recipes.loading import Batch, BatchIndices, TrainSampler
from gaudi_tune.recipes.sharding import load_optimizer, save_optimizer, shard
from gaudi_tune.recipes.step_times import StepTimer, StepTimes
from gaudi_tune.recipes.sync_batch_norm import synchronise_batch_norm
from gaudi_tune.recipes.task import Task, cross_entropy
from gaudi_tune.recipes.training_config import TrainingConfig, check_batch, num_micro_batches
from gaudi_tune.recipes.weight_average import WeightAverage
from gaudi_tune.training.checkpoint import INTERVAL, TRAINED_MODEL, read_state, write_state
from gaudi_tune.training.fresh_start import seed_everything
from gaudi_tune.training.session import Sharded, get_checkpoint, get_context, report, save_if_asked


def train(task: Task, config: TrainingConfig) -> None:
    """Train ``task`` for its budget, from its checkpoint if it has one, and report each epoch or ``eval_every`` steps.

    Everything random between two reports is seeded with (seed, rank, steps done) or with the batch's seed, so a trial
    that resumes reports the same numbers as one that was never interrupted.

    Raises:
        ValueError: The batch cannot be split evenly, or is larger than the data.
    """
    with closing(_Trial(task, config)) as trial:
        _train(trial)


def _train(trial: _Trial) -> None:
    config = trial.config
    if trial.steps_done < trial.steps:
        trial.load_first_batch()
    first_step_at = time.time()
    while trial.has_more_to_report:
        compiling = trial.compiling
        compiled_s = compiling.seconds()
        training_scores, times = trial.train_to_next_report()
        evaluation_began_at = compiling.clock()
        is_finite = math.isfinite(training_scores[names.TRAIN_LOSS])
        scores = trial.evaluation.scores(trial.save_if_asked, is_finite=is_finite)
        trial.end_interval()
        epoch = trial.steps_done / trial.steps_per_epoch
        report(
            {
                names.EPOCH: round(epoch, 3) if config.steps else round(epoch),
                names.STEP: trial.steps_done,
                **training_scores,
                **scores,
                names.LEARNING_RATE: trial.optimizer.param_groups[0]["lr"],
                names.PEAK_LEARNING_RATE: config.peak_lr,
                names.SAMPLES_PER_SECOND: config.batch_size / times.step_s,
                **trial.tokens_per_second(times.step_s),
                names.TRAIN_SECONDS: times.total_s,
                names.COMPILE_SECONDS: times.first_step_extra_s + compiling.seconds() - compiled_s,
                names.EVAL_SECONDS: compiling.clock() - evaluation_began_at,
                names.FIRST_STEP_AT: first_step_at,
            },
            save=trial.save,
        )


@dataclass
class Interval:
    """The steps since the last report. A checkpoint between two reports keeps it, with the sums of rank 0 for all."""

    start: int
    """Steps that had been taken at the last report."""
    loss_sum: torch.Tensor
    """The summed loss, without dimensions."""
    correct: torch.Tensor
    """How many predictions were right, and how many there were."""


class _Trial:
    """The model, optimizer, data and progress of one trial on one worker."""

    def __init__(self, task: Task, config: TrainingConfig) -> None:
        context, self.device = get_context(), worker_device()
        self.rank, self.world = context.get_world_rank(), context.get_world_size()
        self.task, self.config, self.device_type = task, config, DEVICE_TYPES[self.device.type]
        self.device_type.choose_algorithms(tf32=config.tf32, benchmark=config.cudnn_benchmark)
        samples = len(task.train_data)  # type: ignore[arg-type]
        check_batch(config, self.world, samples)
        self.micro_batches = num_micro_batches(config, self.world)
        padded_to = getattr(task.train_data, "padded_to", None)
        self.sampler = TrainSampler(samples, config, self.rank, self.world, padded_to)
        self.steps_per_epoch = self.sampler.steps_per_epoch
        self.steps = config.steps or config.epochs * self.steps_per_epoch
        self.steps_done = 0
        self._interval: Interval | None = None  # the steps since the last report
        mode = config.mode_on(self.device_type).name
        self.train_loss = task.loss or partial(cross_entropy, label_smoothing=self._label_smoothing(mode))
        self.bare_model = task.model
        self.model = self._on_all_workers(task.model)
        # A device's fused kernels take no parts of tensors; torch's own optimizers do.
        kernels = DEVICE_TYPES["cpu"] if task.sharded else self.device_type
        self.optimizer = config.make_optimizer(self.bare_model, torch.device(kernels.kind))
        self.clip_gradients = (
            kernels.gradient_clipping(self.bare_model.parameters(), config.clip_norm) if config.clip_norm else None
        )
        self.schedule = config.make_schedule()
        self.average = WeightAverage(self.bare_model, config.ema_decay) if config.ema_decay else None
        self.scored_model = self.average.model if self.average else self.bare_model
        self.save = Sharded(self._save) if task.sharded else self._save
        self._restore()
        self._started_at = self.steps_done
        feed = Feed(task, config, Worker(self.rank, self.world, self.device, self.device_type))
        self._batches = (batch for batch, _ in feed.on_device(feed.loader(task.train_data, self._all_indices())))
        self._next_batches: Iterator[Batch] = self._batches
        self.compiling = Compiling(config, self.device_type, self.rank, self.world)
        self.train_model, eval_model = self.model, self.scored_model
        if mode == "compiled":
            expect_many_graphs()
            compiled = self.device_type.compile
            self.train_model, eval_model = compiled(self.model), compiled(self.scored_model)
        pads = mode == "compiled" or self.device_type.static_shapes
        self.evaluation = Evaluation(feed, self.scored_model, eval_model, self.compiling, pads=pads)

    def load_first_batch(self) -> None:
        """Wait for the first batch, which counts as part of the trial's start and not of its first step."""
        self._next_batches = chain([next(self._batches)], self._batches)

    def close(self) -> None:
        """Stop loading."""
        self._batches.close()

    @property
    def has_more_to_report(self) -> bool:
        """Whether steps are left, or were taken before the trial was interrupted and have not been reported."""
        return self.steps_done < self.steps or self._interval is not None

    def train_to_next_report(self) -> tuple[dict[str, float], StepTimes]:
        """Train to the end of the epoch, or ``eval_every`` steps.

        Returns:
            The mean loss over all steps and ranks by its name, with ``train_accuracy`` also the accuracy; and times.
        """
        seed_everything(self.config.seed, self.rank, self.steps_done)
        self.model.train()
        # Sums stay on the device: to read them in every step would wait for the device each time.
        interval = self._interval = self._interval or Interval(
            start=self.steps_done,
            loss_sum=torch.zeros((), device=self.device),
            correct=torch.zeros(2, dtype=torch.int64, device=self.device),
        )
        start, first_step = interval.start, self.steps_done
        end = min(self.steps, start + (self.config.eval_every or self.steps_per_epoch))
        timer = StepTimer(self.compiling.clock, self.device_type.synchronize)
        while self.steps_done < end:
            batch = next(self._next_batches)
            with self.compiling.alone("training", batch):
                self._step(batch, interval)
            self.steps_done += 1
            if self.steps_done == self._started_at + 1:
                timer.first_step_has_ended()
            self.save_if_asked()
        loss_sum = float(metrics.sum_over_ranks(interval.loss_sum))  # waits for the last step
        times = timer.stop(max(1, end - first_step))
        self._set_learning_rate_of(end - 1)  # which is reported; all steps may have been taken before an interruption
        scores = {names.TRAIN_LOSS: loss_sum / ((end - start) * self.world)}
        if self.config.train_accuracy:
            correct, total = metrics.sum_over_ranks(interval.correct).tolist()
            scores[names.TRAIN_ACCURACY] = correct / total
        return scores, times

    def tokens_per_second(self, step_s: float) -> dict[str, float]:
        """Return the throughput in tokens by its name, if the task counts tokens."""
        tokens = self.task.tokens_per_sample * self.config.batch_size
        return {names.TOKENS_PER_SECOND: tokens / step_s} if tokens else {}

    def end_interval(self) -> None:
        """Begin another interval with the next step: what this one was is about to be reported."""
        self._interval = None

    def _set_learning_rate_of(self, step: int) -> None:
        factor = self.schedule.factor(step, self.steps, self.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.peak_lr * factor

    def _step(self, batch: Batch, interval: Interval) -> None:
        """Take one optimizer step, and add up the mean losses of this rank's micro-batches, of which one is given."""
        self._set_learning_rate_of(self.steps_done)
        batches = self._step_batches(batch)
        total = self._predictions_in(batches) if self.task.count is not None else None
        for number, batch in enumerate(batches):
            with self._gradient_exchange(number):
                with self.device_type.autocast(self.config.mixed_precision):
                    outputs = self.task.forward(self.train_model, batch).float()
                # The loss is outside of autocast, as in evaluation: a Gaudi would compute products and means in
                # bfloat16.
                summed_loss, count = self.train_loss(outputs, batch)
                loss = summed_loss / (count * self.micro_batches if total is None else total)
                loss.backward()
                self.device_type.mark_step()
            interval.loss_sum += loss.detach()
            if self.config.train_accuracy:
                predicted, expected = self.task.predict(outputs.detach(), batch)
                interval.correct[0] += (predicted == expected).sum()
                interval.correct[1] += expected.numel()
        if self.clip_gradients is not None:
            self.clip_gradients()
        self.optimizer.step()
        if self.average:
            self.average.update()
        self.device_type.mark_step()
        self.optimizer.zero_grad()

    def _step_batches(self, first: Batch) -> Iterable[Batch]:
        """Return the micro-batches of a step; all of them at once if their predictions are counted before."""
        rest = islice(self._next_batches, self.micro_batches - 1)
        return chain([first], rest) if self.task.count is None else [first, *rest]

    def _predictions_in(self, batches: Iterable[Batch]) -> torch.Tensor:
        """Return the number of predictions in the batch of a step, for each worker its equal share."""
        assert self.task.count is not None
        counts = torch.stack([self.task.count(batch) for batch in batches]).sum().float()
        return metrics.sum_over_ranks(counts) / self.world

    def save_if_asked(self) -> None:
        """Save between two reports if the machine will be gone soon; not while a checkpoint is scored."""
        if self._interval is not None:
            save_if_asked(self.save)

    def _save(self, directory: Path) -> None:
        """Write to ``directory`` what the trial needs to continue, and what is needed to load the model elsewhere."""
        if self.task.describe is not None:
            self.task.describe(directory)
        if self.task.sharded:
            save_optimizer(self.bare_model, self.optimizer, directory)
            if self.rank == 0:
                write_state(directory, {"steps_done": self.steps_done})
            return
        state = {"optimizer": self.optimizer.state_dict()}
        if self.task.restore is None:
            state["model"] = self.scored_model.state_dict()
        if self.average:
            state[TRAINED_MODEL] = self.bare_model.state_dict()
        if self._interval is not None:
            state[INTERVAL] = vars(self._interval)
        write_state(directory, {**state, "steps_done": self.steps_done})

    def _restore(self) -> None:
        """Continue from the trial's checkpoint, if it has one, with the hyperparameters of this configuration.

        The checkpoint may be another trial's, trained with other hyperparameters (population-based training).
        """
        checkpoint = get_checkpoint()
        if checkpoint is None:
            return
        with checkpoint.as_directory() as directory:
            state = read_state(Path(directory))
            if self.task.restore is not None:
                self.task.restore(Path(directory))
            self.steps_done = state["steps_done"]
            if self.task.sharded:
                load_optimizer(self.bare_model, self.optimizer, Path(directory))
                return
        if self.task.restore is None:
            self.bare_model.load_state_dict(state.get(TRAINED_MODEL, state["model"]))
        if self.average:
            self.average.model.load_state_dict(state["model"])
        # The groups of an optimizer hold hyperparameters, which come from the configuration, and in habana's fused
        # AdamW also the number of steps, which comes from the checkpoint.
        saved_groups = state["optimizer"]["param_groups"]
        new_groups = self.optimizer.state_dict()["param_groups"]
        groups = [{**saved, **new} for saved, new in zip(saved_groups, new_groups, strict=True)]
        self.optimizer.load_state_dict({"state": state["optimizer"]["state"], "param_groups": groups})
        if INTERVAL in state:
            interval = Interval(**state[INTERVAL])
            interval.loss_sum = interval.loss_sum.to(self.device)
            interval.correct = interval.correct.to(self.device)
            self._interval = interval

    def _label_smoothing(self, mode: str) -> float | torch.Tensor:
        """Return the label smoothing: a tensor where a number would be a constant that compiles another graph."""
        share = self.config.label_smoothing
        return torch.tensor(share, device=self.device) if share and mode != "eager" else share

    def _on_all_workers(self, model: nn.Module) -> nn.Module:
        if self.world == 1:
            return model.to(self.device)
        if self.task.sharded:
            shard(model, self.device)
            return model
        from ray.train.torch import prepare_model  # here, so that a trained model can be loaded without Ray

        if self.config.sync_batch_norm:
            synchronise_batch_norm(model)
        settings = self.device_type.data_parallel_settings()
        return cast(nn.Module, prepare_model(model, parallel_strategy_kwargs=settings))

    def _gradient_exchange(self, number: int) -> AbstractContextManager[None]:
        """Return the context of a micro-batch: workers exchange gradients only in the last one of a step."""
        if number == self.micro_batches - 1 or not isinstance(self.model, DistributedDataParallel):
            return nullcontext()
        return cast("AbstractContextManager[None]", self.model.no_sync())

    def _all_indices(self) -> Iterator[BatchIndices]:
        """Yield what to load for all steps that are left. So an epoch begins to load before the last one is scored."""
        position = self.steps_done
        while position < self.steps:
            epoch, step = divmod(position, self.steps_per_epoch)
            self.sampler.start_at(epoch, step)
            yield from self.sampler
            position += self.steps_per_epoch - step
