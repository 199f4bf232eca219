"""The training loop that all models share.

It trains data-parallel, computes metrics that count each sample once, and reports (and saves a checkpoint, if one is
requested) after each epoch or a number of steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from gaudi_tune.base import names
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.private.torch import expect_many_graphs
from gaudi_tune.recipes import metrics
from gaudi_tune.recipes.compiling import Compiling
from gaudi_tune.recipes.interval import Interval
from gaudi_tune.recipes.loading import (
    Batch,
    BatchIndices,
    Loader,
    TrainSampler,
    eval_batches,
    one_ahead,
    padded,
    size_of,
)
from gaudi_tune.recipes.profiling import traced
from gaudi_tune.recipes.sharding import load_optimizer, save_optimizer, shard
from gaudi_tune.recipes.step_times import StepTimer, StepTimes
from gaudi_tune.recipes.sync_batch_norm import synchronise_batch_norm
from gaudi_tune.recipes.training_config import TOP, TrainingConfig, check_batch, num_micro_batches
from gaudi_tune.recipes.weight_average import WeightAverage
from gaudi_tune.training.checkpoint import INTERVAL, TRAINED_MODEL, read_state, write_state
from gaudi_tune.training.fresh_start import seed_everything
from gaudi_tune.training.session import Sharded, get_checkpoint, get_context, report, save_if_asked, trial_folder

if TYPE_CHECKING:
    from evaluate import Metric

Loss = Callable[[torch.Tensor, Batch], tuple[torch.Tensor, torch.Tensor | int]]
"""A function of a model's outputs and the batch. It returns the loss, summed over all predictions, and their number:
samples, or tokens if each token has a label."""


def classes_of(outputs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the most probable class and the label of each sample; for a mixture (mixup, cutmix), the larger label."""
    labels = batch["labels"]
    return outputs.argmax(dim=1), labels.argmax(dim=1) if labels.ndim > 1 else labels


@dataclass(frozen=True, kw_only=True)
class Task:
    """The parts of a training that depend on the model. The defaults train a classifier."""

    model: nn.Module
    """The model, on the CPU and not wrapped."""
    forward: Callable[[nn.Module, Batch], torch.Tensor]
    """Returns the model's outputs, with samples in the first dimension; for a classifier, logits of shape (n,
    classes)."""
    train_data: Dataset[Any]
    """The training data. ``__getitems__`` takes a list of indices and returns a :data:`Batch`. It is pickled if there
    are loader workers. If it has an attribute ``padded_to``, an array of the length that each sample is padded to,
    batches are drawn from samples of one length, which ``__getitems__`` takes as its second argument."""
    prepare: Callable[[Batch], Batch] | None = None
    """Turns a batch, on the device, into the model's input. So data may be copied in a small type, such as uint8. None:
    the batch is the input."""
    val_data: Dataset[Any]
    """The validation data, in the same form."""
    test_data: Dataset[Any] | None = None
    """The test data, in the same form, for trials that confirm others; None if there is none."""
    loss: Loss | None = None
    """The loss, of which the mean over each micro-batch is minimised, so that all micro-batches and workers weigh the
    same. None: the cross-entropy of the batch's ``labels``, in training with ``label_smoothing``."""
    count: Callable[[Batch], torch.Tensor] | None = None
    """Returns of how many predictions the loss of a batch is the sum. Then the mean over the whole batch of a step, of
    all micro-batches and workers, is minimised, and each prediction weighs the same, such as each token. None: each
    micro-batch and worker does."""
    predict: Callable[[torch.Tensor, Batch], tuple[torch.Tensor, torch.Tensor]] = classes_of
    """Returns equally many predictions and references for the metrics, integers or floats."""
    metrics: Mapping[str, Callable[[], Metric]] = field(
        default_factory=lambda: {names.VAL_ACCURACY: metrics.accuracy_metric}
    )
    """Functions that make the metrics, such as a subclass of ``evaluate.Metric``, by the names of the metrics in
    reports. A metric is one number. It is computed on rank 0, over the predictions of all ranks."""
    describe: Callable[[Path], None] | None = None
    """Writes to a checkpoint what is needed to build the model again, besides its state."""
    restore: Callable[[Path], None] | None = None
    """Reads the weights that ``describe`` has written. Then checkpoints have no others, such as those of a base model
    that is not trained. None: they have the state of the whole model."""
    sharded: bool = False
    """Whether each worker has a part of the model only. Then ``describe`` and ``restore`` must be given, and all ranks
    call ``describe``, which gathers the weights and writes them on rank 0."""
    tokens_per_sample: float = 0.0
    """Mean number of tokens in a training sample, without padding, for the throughput in reports. 0: none is
    reported."""
    check_fit: Callable[[Path], None] | None = None
    """Raises a ValueError for a checkpoint whose scores would be wrong here: it was trained with other classes, or with
    data that was prepared in another way."""


def train(task: Task, config: TrainingConfig) -> None:
    """Train ``task`` for its budget, from its checkpoint if it has one, and report each epoch or ``eval_every`` steps.

    Everything random between two reports is seeded with (seed, rank, steps done) or with the batch's seed, so a trial
    that resumes reports the same numbers as one that was never interrupted.

    Raises:
        ValueError: The batch cannot be split evenly, or is larger than the data.
    """
    with closing(_Trial(task, config)) as trial:
        if config.evaluate:
            _evaluate(trial)
        else:
            _train(trial)


def _evaluate(trial: _Trial) -> None:
    task, checkpoint = trial.task, Path(trial.config.evaluate)
    if task.check_fit is not None:
        task.check_fit(checkpoint)
    if task.restore is not None:
        task.restore(checkpoint)
    else:
        trial.scored_model.load_state_dict(read_state(checkpoint)["model"])
    report(trial.scores())


def _train(trial: _Trial) -> None:
    config = trial.config
    if trial.steps_done < trial.steps:
        trial.load_first_batch()
    first_step_at = time.time()
    while trial.has_more_to_report:
        compiling = trial.compiling
        compiled_s = compiling.seconds()
        trained = trial.train_to_next_report()
        times = trained.times
        evaluation_began_at = compiling.clock()
        scores = trial.scores(is_finite=math.isfinite(trained.loss))
        trial.end_interval()
        epoch = trial.steps_done / trial.steps_per_epoch
        report(
            {
                names.EPOCH: round(epoch, 3) if config.steps else round(epoch),
                names.STEP: trial.steps_done,
                names.TRAIN_LOSS: trained.loss,
                **trained.accuracy,
                **scores,
                names.LEARNING_RATE: trial.optimizer.param_groups[0]["lr"],
                names.PEAK_LEARNING_RATE: config.peak_lr,
                names.SAMPLES_PER_SECOND: config.batch_size / times.step_s,
                names.LAST_STEP_SAMPLES_PER_SECOND: config.batch_size / times.last_step_s,
                **trial.tokens_per_second(times.step_s),
                names.TRAIN_SECONDS: times.total_s,
                names.COMPILE_SECONDS: times.first_step_extra_s + compiling.seconds() - compiled_s,
                names.EVAL_SECONDS: compiling.clock() - evaluation_began_at,
                names.FIRST_STEP_AT: first_step_at,
            },
            save=trial.save,
        )


class _Trained(NamedTuple):
    """The training between two reports."""

    loss: float
    """Mean over all steps and ranks."""
    accuracy: dict[str, float]
    """The training accuracy by its name; empty if ``train_accuracy`` is off."""
    times: StepTimes


class _Trial:
    """The model, optimizer, data and progress of one trial on one worker."""

    def __init__(self, task: Task, config: TrainingConfig) -> None:
        context = get_context()
        self.rank, self.world = context.get_world_rank(), context.get_world_size()
        self.task, self.config, self.device = task, config, worker_device()
        self.device_type = DEVICE_TYPES[self.device.type]
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
        by_default = self.device.type != "cpu" and mode != "lazy"
        self.copies_ahead = by_default if config.copy_ahead == "auto" else config.copy_ahead
        self.train_loss = task.loss or partial(cross_entropy, label_smoothing=self._label_smoothing(mode))
        self.eval_loss = task.loss or cross_entropy
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
        self.train_loader = self._loader(task.train_data, self._all_indices())
        self.val_loader = self._eval_loader(task.val_data)
        test_data = task.test_data if config.confirms or config.evaluate else None
        self.test_loader = None if test_data is None else self._eval_loader(test_data)
        self._batches = (batch for batch, _ in self._on_device(self.train_loader))
        self._next_batches: Iterator[Batch] = self._batches
        self.compiling = Compiling(config, self.device_type, self.rank, self.world)
        self.train_model, self.eval_model = self.model, self.scored_model
        self.compiles = mode == "compiled"
        if self.compiles:
            expect_many_graphs()
            compiled = self.device_type.compile
            self.train_model, self.eval_model = compiled(self.model), compiled(self.scored_model)
        self.metrics = {**task.metrics, **(metrics.BALANCED_METRICS if config.balanced_metrics else {})}

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

    def train_to_next_report(self) -> _Trained:
        """Train to the end of the epoch, or ``eval_every`` steps."""
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
        # Only rank 0 traces, and only a trial's first steps.
        traced_steps = 0 if self.rank or start else self.config.profile
        with traced(self.device_type, end - first_step, traced_steps, trial_folder()) as trace_step:
            while self.steps_done < end:
                if self.steps_done == end - 1:
                    timer.last_step_begins()
                batch = next(self._next_batches)
                with self.compiling.alone("training", batch):
                    self._step(batch, interval.loss_sum)
                self.steps_done += 1
                if self.steps_done == self._started_at + 1:
                    timer.first_step_has_ended()
                trace_step()
                save_if_asked(self.save)
        loss_sum = float(metrics.sum_over_ranks(interval.loss_sum))  # waits for the last step
        times = timer.stop(max(1, end - first_step))
        self._set_learning_rate_of(end - 1)  # which is reported; all steps may have been taken before an interruption
        return _Trained(loss_sum / ((end - start) * self.world), self._train_accuracy(), times)

    def tokens_per_second(self, step_s: float) -> dict[str, float]:
        """Return the throughput in tokens by its name, if the task counts tokens."""
        tokens = self.task.tokens_per_sample * self.config.batch_size
        return {names.TOKENS_PER_SECOND: tokens / step_s} if tokens else {}

    def end_interval(self) -> None:
        """Begin another interval with the next step: what this one was is about to be reported."""
        self._interval = None

    def _train_accuracy(self) -> dict[str, float]:
        if not self.config.train_accuracy:
            return {}
        assert self._interval is not None, "it is trained"
        correct, total = metrics.sum_over_ranks(self._interval.correct).tolist()
        return {names.TRAIN_ACCURACY: correct / total}

    def _note_predictions(self, predicted: torch.Tensor, expected: torch.Tensor) -> None:
        assert self._interval is not None, "a step is part of one"
        self._interval.correct[0] += (predicted == expected).sum()
        self._interval.correct[1] += expected.numel()

    def _set_learning_rate_of(self, step: int) -> None:
        factor = self.schedule.factor(step, self.steps, self.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.peak_lr * factor

    def _step(self, batch: Batch, loss_sum: torch.Tensor) -> None:
        """Take one optimizer step, and add the mean loss of this rank's micro-batches, of which one is given."""
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
            loss_sum += loss.detach()
            if self.config.train_accuracy:
                predicted, expected = self.task.predict(outputs.detach(), batch)
                self._note_predictions(predicted, expected)
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

    def scores(self, *, is_finite: bool = True) -> dict[str, float]:
        """Return loss and metrics of the validation data, and of the test data if there is any to score.

        Args:
            is_finite: Whether the training loss is finite. If not, nothing is evaluated, and all scores are NaN.
        """
        scores = self.evaluate(self.val_loader) if is_finite else self.nan_scores()
        if self.test_loader is not None:
            test_scores = self.evaluate(self.test_loader) if is_finite else self.nan_scores()
            scores |= {names.test_metric(name): value for name, value in test_scores.items()}
        return scores

    @torch.no_grad()
    def evaluate(self, loader: Loader) -> dict[str, float]:
        """Return the mean loss over all samples of the data and the metrics, by the names of validation.

        Metrics are computed on rank 0; on other ranks they are NaN.
        """
        self.scored_model.eval()  # not the wrapper, which would synchronise ranks with different numbers of batches
        self._share_buffers()
        pads = self.compiles or self.device_type.static_shapes  # another shape would be compiled again
        loss_sum = torch.zeros((), device=self.device)
        count_sum = torch.zeros((), dtype=torch.int64, device=self.device)
        top5_correct = torch.zeros((), dtype=torch.int64, device=self.device)
        empty = torch.empty(0, dtype=torch.int64, device=self.device)  # for a rank without samples
        predictions, references = [empty], [empty]
        for model_input, size in self._passes(loader, pad_to=self.config.eval_batch if pads else 0):
            batch = {name: tensor[:size] for name, tensor in model_input.items()}
            if self._interval is not None:
                save_if_asked(self.save)
            with self.compiling.alone("evaluation", model_input):
                with self.device_type.autocast(self.config.mixed_precision):
                    outputs = self.task.forward(self.eval_model, model_input).float()
                self.device_type.mark_step()
            outputs = outputs[:size]
            summed_loss, count = self.eval_loss(outputs, batch)
            loss_sum += summed_loss
            count_sum += count
            if self.config.top5_accuracy:
                top5_correct += (outputs.topk(TOP, dim=1).indices == batch["labels"].unsqueeze(1)).sum()
            predicted, expected = self.task.predict(outputs, batch)
            predictions.append(predicted.flatten())
            references.append(expected.flatten())
            self.device_type.mark_step()
        count = int(metrics.sum_over_ranks(count_sum))
        scores = {**self.nan_scores(), names.VAL_LOSS: float(metrics.sum_over_ranks(loss_sum)) / count}
        if self.config.top5_accuracy:
            scores[names.VAL_TOP5_ACCURACY] = int(metrics.sum_over_ranks(top5_correct)) / count
        gathered = [metrics.gather_over_ranks(torch.cat(parts)) for parts in (predictions, references)]
        if self.rank == 0:
            predicted, expected = (values.cpu() for values in gathered)
            for name, make_metric in self.metrics.items():
                result = make_metric().compute(predictions=predicted, references=expected)
                if len(result) != 1:
                    raise ValueError(f"the metric {name!r} must be one number, but gives {', '.join(result)}")
                scores[name] = float(*result.values())
        return scores

    def _passes(self, loader: Loader, pad_to: int) -> Iterator[tuple[Batch, int]]:
        """Yield the batches to score. Where the model is sharded, all ranks compute each layer together: one that has
        fewer batches than rank 0 passes its last one again, of which no sample counts."""
        missing = loader.passes
        for batch, size in self._on_device(loader, pad_to):
            yield batch, size
            missing -= 1
        for _ in range(missing if self.task.sharded else 0):
            yield batch, 0

    def nan_scores(self) -> dict[str, float]:
        """Return NaN for the loss and each metric."""
        score_names = [names.VAL_LOSS, *self.metrics]
        if self.config.top5_accuracy:
            score_names.insert(1, names.VAL_TOP5_ACCURACY)
        return dict.fromkeys(score_names, math.nan)

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

    def _eval_loader(self, data: Dataset[Any]) -> Loader:
        padded_to = getattr(data, "padded_to", None)
        samples = len(data)  # type: ignore[arg-type]
        if self.task.sharded and samples < self.world:
            raise ValueError(f"val_samples must be at least the {self.world} workers of the trial, but got {samples}")
        batches = partial(eval_batches, samples, world=self.world, size=self.config.eval_batch, padded_to=padded_to)
        return self._loader(data, batches(self.rank), passes=len(batches(0)))

    def _loader(self, data: Dataset[Any], batches: Iterable[BatchIndices], passes: int = 0) -> Loader:
        processes = 0 if self.config.loader_workers == "auto" else self.config.loader_workers  # a plan has a number
        return Loader(data, batches, processes, self.device_type.pins_memory, passes)

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

    def _share_buffers(self) -> None:
        """Give all ranks the running statistics of rank 0, which are those that are saved."""
        if self.world == 1:
            return
        average_buffers = self.average.model.buffers() if self.average else ()
        for buffer in (*self.bare_model.buffers(), *average_buffers):
            if buffer.is_floating_point():
                dist.broadcast(buffer, src=0)

    def _all_indices(self) -> Iterator[BatchIndices]:
        """Yield what to load for all steps that are left. So an epoch begins to load before the last one is scored."""
        position = self.steps_done
        while position < self.steps:
            epoch, step = divmod(position, self.steps_per_epoch)
            self.sampler.start_at(epoch, step)
            yield from self.sampler
            position += self.steps_per_epoch - step

    def _on_device(self, loader: Loader, pad_to: int = 0) -> Iterator[tuple[Batch, int]]:
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
            return {name: t.to(self.device, non_blocking=True) for name, t in copied.items()}, size_of(batch)

        for batch, size in one_ahead(copy_next) if self.copies_ahead and loader.is_isolated else iter(copy_next, None):
            yield (self.task.prepare(batch) if self.task.prepare else batch), size


def cross_entropy(
    logits: torch.Tensor, batch: Batch, label_smoothing: float | torch.Tensor = 0.0
) -> tuple[torch.Tensor, int]:
    """Return the loss of a classifier: the summed cross-entropy of the batch's ``labels``, and their number."""
    labels = batch["labels"]
    if isinstance(label_smoothing, torch.Tensor):  # torch's own takes numbers
        hard = F.cross_entropy(logits, labels, reduction="sum")
        even = F.log_softmax(logits, dim=1).sum() / -logits.shape[1]
        return torch.lerp(hard, even, label_smoothing), len(labels)
    return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=label_smoothing), len(labels)
