"""Hyperparameters and settings of :func:`~gaudi_tune.recipes.loop.train`, and how a batch is split.

This module imports no library, because a plan is checked before torch is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import Self, override

from gaudi_tune.base import names
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.devices.gaudi_node import LAZY_MODE
from gaudi_tune.devices.worker_side import OptimizerName
from gaudi_tune.recipes.schedules import Schedule, ScheduleKind
from gaudi_tune.training.trial_config import ExecutionMode, TrialConfig

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim import Optimizer

EVAL_BATCH = 64
"""Validation samples in one forward pass, unless the setting ``eval_batch`` says otherwise."""
TOP = 5
"""How many of the most probable classes count for ``top5_accuracy``."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(TrialConfig):
    """Hyperparameters (without a default) and settings of gradient descent on labelled samples."""

    divides_work = True
    fractions = frozenset({names.VAL_ACCURACY})
    published_rates: ClassVar[tuple[tuple[float, float], ...]] = ()
    """The table of the schedule ``published``, if the recipe has one: (share of the budget at which a row begins, share
    of the peak learning rate)."""

    lr: float
    """Peak learning rate, at the batch of ``lr_for_batch``."""
    batch_size: int
    """Samples in one optimizer step, split over the workers."""
    lr_for_batch: int = 0
    """Batch size that ``lr`` is meant for. With another batch size the peak is scaled in proportion to it (sgd) or to
    its square root (others). Sweeps of an experiment with ``scale_lr`` use the baseline's. 0: ``lr`` is always the
    peak."""
    momentum: float = 0.0
    """Momentum of ``sgd``, ``rmsprop`` and ``lars``; the others have none."""
    weight_decay: float
    """L2 penalty (sgd, rmsprop, lars) or decoupled weight decay (adamw)."""
    decayed: Literal["all", "weights"] = "all"
    """What ``weight_decay`` acts on: all parameters, or only weights, without norms, biases and embeddings."""
    optimizer: OptimizerName = "sgd"
    """The optimizer, with torch's own betas, alpha and eps. ``lars`` scales each layer's step to the norm of its
    weights, except where weight decay is left out: it needs ``decayed=weights``."""
    schedule: ScheduleKind = "constant"
    """How the learning rate falls from its peak over the budget. ``published`` follows the recipe's own table,
    stretched to the budget; the table may have its own warm-up."""
    warmup: float = 0.0
    """Share of all optimizer steps in which the learning rate rises to its peak. 0 means none."""
    lr_floor: float = 0.0
    """Share of the peak learning rate below which no schedule falls."""
    step_size: int = 30
    """Epochs after which the schedules ``step`` (at once) and ``exponential`` (evenly) have fallen by ``gamma``."""
    gamma: float = 0.1
    """Factor of the schedules ``step`` and ``exponential``."""
    label_smoothing: float = 0.0
    """Share of each label that is spread evenly over all classes, in the training loss only. 0 means none."""
    micro_batch: int = 0
    """Most samples that a worker trains on at once, so that they fit on its device. A larger share of the batch is
    split into equal micro-batches, whose gradients are summed; workers synchronise in the last one. 0: no limit."""
    clip_norm: float = 0.0
    """Largest total norm of all gradients; longer gradients are scaled down. 0 means no limit."""
    nesterov: bool = False
    """Whether SGD uses Nesterov momentum. Other optimizers ignore it."""
    ema_decay: float = 0.0
    """Share that a moving average of the weights keeps of itself in each step. The average is evaluated in place of the
    weights, and checkpoints have both. 0 means no average."""
    train_accuracy: bool = False
    """Whether to report the accuracy of predictions in the training steps, with augmentation and dropout."""
    top5_accuracy: bool = False
    """Whether to report how often the label is among a classifier's five most probable classes."""
    balanced_metrics: bool = False
    """Whether to report balanced accuracy and macro F1, in which rare classes count as much as common ones."""
    mixed_precision: Literal["auto", "bf16", "off"] = "auto"
    """bfloat16 autocast around forward and loss. auto: on hpu and cuda."""
    compile: bool | Literal["auto"] = "auto"
    """Whether to compile the model, with torch.compile (backend hpu_backend on an HPU). auto: on an HPU, unless
    lazy_mode or sync_batch_norm is on."""
    lazy_mode: bool | Literal["auto"] = "auto"
    """Whether habana collects operations into graphs by itself, in place of torch.compile. auto: as PT_HPU_LAZY_MODE
    says; without that variable, no."""
    sync_batch_norm: bool = False
    """Whether batch normalisation computes its statistics over all workers of a trial."""
    loader_workers: int | Literal["auto"] = 0
    """Processes per worker that load batches. 0: the worker loads them itself. auto: nine tenths of the host's cores
    for each worker, as the plan finds them, so 18 of 160 cores for each of 8 HPUs."""
    copy_ahead: bool | Literal["auto"] = "auto"
    """Whether a thread copies the next batch to the device while that computes, where loading draws no random numbers
    in the worker. auto: on an accelerator, but not in lazy mode, in which habana's tensors belong to one thread."""
    eval_batch: int = EVAL_BATCH
    """Validation samples in one forward pass of a worker. Without gradients, more fit into memory than in training. It
    is the same in every trial, so that a sweep compiles one graph for evaluation."""
    tf32: bool = False
    """Whether a GPU may round the factors of float32 products and convolutions to 10 bits. Others ignore it."""
    cudnn_benchmark: bool = False
    """Whether cuDNN tries its algorithms for each shape and takes the fastest. Then the same trial may differ in the
    last digits from run to run. Devices other than GPUs ignore it."""
    train_samples: int = 0
    """How many training samples are used, beginning with the first. 0 means all."""
    val_samples: int = 0
    """How many validation samples are used, beginning with the first. 0 means all."""
    hold_out: bool = False
    """Whether half of the validation data becomes test data, which no trial of the search sees. If the data has its own
    test part, that is used and the validation data stays whole."""

    @override
    def rules(self) -> dict[str, bool]:
        """Return each rule in words, and whether the values keep it."""
        return super().rules() | {
            "lr must be above 0": self.lr > 0,
            "lr, weight_decay and clip_norm must be finite": max(self.lr, self.weight_decay, self.clip_norm) < math.inf,
            "batch_size must be at least 1": self.batch_size >= 1,
            "lr_for_batch must not be negative": self.lr_for_batch >= 0,
            "momentum must be from 0 to below 1": 0 <= self.momentum < 1,
            "weight_decay must not be negative": self.weight_decay >= 0,
            "schedule=published needs a recipe with a table of learning rates, which only ResNet-50 on ImageNet has": (
                self.schedule != "published" or bool(self.published_rates)
            ),
            "warmup must be from 0 to 1": 0 <= self.warmup <= 1,
            "lr_floor must be from 0 to 1": 0 <= self.lr_floor <= 1,
            "step_size must be at least 1 and gamma above 0": self.step_size >= 1 and self.gamma > 0,
            "label_smoothing must be from 0 to below 1": 0 <= self.label_smoothing < 1,
            "micro_batch must not be negative": self.micro_batch >= 0,
            "clip_norm must not be negative": self.clip_norm >= 0,
            "nesterov needs a momentum above 0": self.momentum > 0 or self.optimizer != "sgd" or not self.nesterov,
            "optimizer lars needs decayed=weights": self.optimizer != "lars" or self.decayed == "weights",
            "ema_decay must be from 0 to below 1": 0 <= self.ema_decay < 1,
            "compile and lazy_mode exclude each other": not (self.compile is True and self.lazy_mode is True),
            "compile and sync_batch_norm exclude each other, since each batch normalisation would end a graph to ask "
            "the other workers": not (self.compile is True and self.sync_batch_norm),
            "loader_workers must not be negative": self.loader_workers == "auto" or self.loader_workers >= 0,
            "eval_batch must be at least 1": self.eval_batch >= 1,
            "train_samples and val_samples must not be negative": min(self.train_samples, self.val_samples) >= 0,
        }

    @override
    def worker_environment(self) -> dict[str, str]:
        """Return habana's variable for its mode if the configuration sets one; habana reads it when it is imported."""
        return {} if self.lazy_mode == "auto" else {LAZY_MODE: str(int(self.lazy_mode))}

    @override
    def for_device(self, device: DeviceType, cores: int = 1) -> Self:
        """Return a copy with the number of loader processes, and with lazy mode if an environment variable says so.

        The variable counts here: other nodes may not have it.

        Raises:
            ValueError: The device does not support what the configuration requires.
        """
        if self.lazy_mode is True and not device.has_lazy_mode:
            raise ValueError(f"--set lazy_mode=true: an HPU has a lazy mode, {device.kind} has none; leave it out")
        found: dict[str, Any] = {"lazy_mode": True} if self.mode_on(device).name == "lazy" else {}
        if self.loader_workers == "auto":
            found["loader_workers"] = 9 * cores // 10
        return replace(self, **found)

    @override
    def largest(self, values: Callable[[str], Iterable[Any]], workers: int) -> Self:
        """Return a copy with the largest of the batch sizes, after checking that workers can share each of them."""
        all_sizes = sorted({self.batch_size, *values("batch_size")})
        for size in all_sizes:
            try:
                check_batch(replace(self, batch_size=size), workers, samples=size)
            except ValueError as error:  # noqa: PERF203
                raise ValueError(
                    f"--workers-per-trial {workers}: {error}; the search space has {', '.join(map(str, all_sizes))}: "
                    f"take another width, or --set batch_size=N"
                ) from error
        return replace(self, batch_size=all_sizes[-1])

    @override
    def mode_on(self, device: DeviceType) -> ExecutionMode:
        """Return how operations are run on this kind of device, in a process with the variables of this one."""
        if self.lazy_mode is True:
            return ExecutionMode("lazy", "lazy_mode=true")
        if self.lazy_mode == "auto" and device.is_lazy():
            return ExecutionMode("lazy", f"{LAZY_MODE}=1 is set")
        if self.compile != "auto":
            return ExecutionMode("compiled" if self.compile else "eager", f"compile={str(self.compile).lower()}")
        if device.compiles and self.sync_batch_norm:
            return ExecutionMode("eager", "sync_batch_norm would break a compiled graph at each batch normalisation")
        return ExecutionMode("compiled" if device.compiles else "eager", f"the default on {device.kind}")

    def min_micro_batch(self, workers: int) -> int:
        """Return the smallest number of samples that a worker can train on at once."""
        return 1

    @override
    def settings_of_wider(self, device: DeviceType, workers: int, wider: int) -> dict[str, Any]:
        """Return no settings, after checking that the batch can be split among more workers."""
        num_micro_batches(self, wider)
        return {}

    @property
    def peak_lr(self) -> float:
        """The learning rate that the schedule begins with or rises to: ``lr``, scaled to this batch size.

        It is scaled in proportion to the batch size for SGD (Goyal et al. 2017), and to its square root for optimizers
        that divide gradients by their size (Malladi et al. 2022).
        """
        ratio = self.batch_size / (self.lr_for_batch or self.batch_size)
        return self.lr * (ratio if self.optimizer == "sgd" else math.sqrt(ratio))

    @override
    def graph_signature(self, device: DeviceType, workers: int) -> dict[str, Any] | None:
        """Return what the graphs of the model depend on; None in eager mode, which compiles none.

        In lazy mode a graph is a whole step, so it also depends on the loss and the optimizer.
        """
        mode = self.mode_on(device).name
        if mode == "compiled":
            return self.graph(workers)
        if mode == "lazy":
            return self.graph(workers) | self._step_graph(workers)
        return None

    def graph(self, workers: int) -> dict[str, Any]:
        """Return what the graphs of the model depend on, by name: shapes, and Python numbers that are baked in.

        Subclasses add theirs. No graph depends on the learning rate, the momentum or the clipped norm.
        """
        samples = self.batch_size // workers // num_micro_batches(self, workers)
        shared = {name: getattr(self, name) for name in ("mixed_precision", "eval_batch")}
        return {"samples of a micro-batch": samples, **shared}

    def _step_graph(self, workers: int) -> dict[str, Any]:
        constants = ["optimizer", "weight_decay", "decayed", "nesterov", "ema_decay"]
        if self.optimizer == "lars":
            constants.append("momentum")  # a constant in habana's kernel
        return {
            "micro-batches": num_micro_batches(self, workers),
            "label smoothing or none": self.label_smoothing > 0,
            **{name: getattr(self, name) for name in constants},
        }

    def make_schedule(self) -> Schedule:
        """Return the schedule of the learning rate."""
        return Schedule(
            kind=self.schedule,
            warmup=self.warmup,
            floor=self.lr_floor,
            step_size=self.step_size,
            gamma=self.gamma,
            table=self.published_rates,
        )

    def make_optimizer(self, model: nn.Module, device: torch.device) -> Optimizer:
        """Return the optimizer of a model, which must be on ``device`` already."""
        momentum: dict[str, Any] = {} if self.optimizer == "adamw" else {"momentum": self.momentum}
        if self.optimizer == "sgd":
            momentum["nesterov"] = self.nesterov
        optimizer_class = DEVICE_TYPES[device.type].optimizer_class(self.optimizer)
        return optimizer_class(
            self._parameter_groups(model), lr=self.peak_lr, weight_decay=self.weight_decay, **momentum
        )

    def _parameter_groups(self, model: nn.Module) -> list[Any]:
        """Return the parameters that are trained. A group has at least one, as habana's fused optimizers require."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if self.decayed == "all":
            return parameters
        from torch import nn

        weights = {
            id(parameter)
            for module in model.modules()
            if not isinstance(module, nn.Embedding)
            for name, parameter in module.named_parameters(recurse=False)
            if name.endswith("weight") and parameter.ndim > 1  # weights of norms are vectors
        }
        decayed = [parameter for parameter in parameters if id(parameter) in weights]
        spared = [parameter for parameter in parameters if id(parameter) not in weights]
        plain = {"adapts": False} if self.optimizer == "lars" else {}
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": spared, "weight_decay": 0.0, **plain}]
        return [group for group in groups if group["params"]]


def num_micro_batches(config: TrainingConfig, workers: int) -> int:
    """Return into how many equal micro-batches a worker splits its share of a batch.

    Raises:
        ValueError: The batch cannot be split evenly.
    """
    share, rest = divmod(config.batch_size, workers)
    if rest:
        raise ValueError(
            f"batch_size must be a multiple of the {workers} workers that share it, but got {config.batch_size}"
        )
    number = math.ceil(share / config.micro_batch) if config.micro_batch else 1
    if share % number:
        raise ValueError(
            f"batch_size must be such that a worker's share of it is {number} equal parts of at most micro_batch, but "
            f"got batch_size={config.batch_size}, which is {share} samples for each of {workers}, and "
            f"micro_batch={config.micro_batch}"
        )
    return number


def check_classes(config: TrainingConfig, classes: int) -> None:
    """Check that the metrics of a classifier make sense with this number of classes.

    Raises:
        ValueError: All classes would be among the five most probable.
    """
    if config.top5_accuracy and classes <= TOP:
        raise ValueError(f"top5_accuracy needs more than {TOP} classes, but the data has {classes}; leave it out")


def check_batch(config: TrainingConfig, workers: int, samples: int) -> None:
    """Check that a batch can be split evenly among ``workers``, and that there are enough ``samples`` to fill it.

    Raises:
        ValueError: The batch cannot be split, a micro-batch is too small for the model, or there are too few samples.
    """
    micro_batch = config.batch_size // workers // num_micro_batches(config, workers)
    smallest = config.min_micro_batch(workers)
    if micro_batch < smallest:
        raise ValueError(
            f"batch_size must leave each of {workers} workers {smallest} samples at a time (batch normalisation has "
            f"too few values otherwise), but got batch_size={config.batch_size} and micro_batch={config.micro_batch}"
        )
    if config.batch_size > samples:
        raise ValueError(
            f"batch_size must be at most the {samples} training samples, but got {config.batch_size}; "
            f"--set batch_size=N fixes it for all trials"
        )
