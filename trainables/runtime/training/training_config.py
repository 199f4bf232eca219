"""Hyperparameters and settings of :func:`~trainables.runtime.training.loop.train`, and how a batch is split.

Importing this imports no library: a plan is checked before torch is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainables.runtime.devices.find import DEVICE_TYPES
from trainables.runtime.trial_config import TrialConfig

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim import Optimizer

TOP = 5
"""How many of the most probable classes ``top5_accuracy`` looks at."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(TrialConfig):
    """Hyperparameters (without a default) and settings of gradient descent on labelled samples."""

    lr: float
    """Peak learning rate."""
    batch_size: int
    """Samples in one optimizer step, split over the workers."""
    momentum: float
    """Momentum of SGD. Not read by AdamW."""
    weight_decay: float
    """L2 penalty (sgd) or decoupled weight decay (adamw)."""
    warmup: float
    """Share of all optimizer steps in which the learning rate rises to its peak. 0 means none."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """``sgd`` takes ``momentum``; ``adamw`` has torch's own betas and eps."""
    label_smoothing: float = 0.0
    """Share of each label given to all classes evenly, in the training loss only. 0 means none."""
    pass_size: int = 0
    """Most samples that a worker trains on at once, as many as its device holds. A larger share of the batch takes
    several equal passes, whose gradients are summed; the workers synchronise in the last of them. 0: no limit."""
    clip_norm: float = 0.0
    """Largest norm of all gradients together; longer ones are shortened. 0 means no limit."""
    nesterov: bool = False
    """Whether SGD looks ahead by its momentum (Nesterov). Only SGD reads it."""
    ema_decay: float = 0.0
    """What a moving average of the weights keeps of itself in each step. The average is evaluated and saved in place of
    the weights; checkpoints have both. 0 means none."""
    train_accuracy: bool = False
    """Whether to report the accuracy of the training steps' own predictions, with augmentation and dropout."""
    top5_accuracy: bool = False
    """Whether to report how often a classifier has the label among its five most probable classes."""
    balanced_metrics: bool = False
    """Whether to report balanced accuracy and macro F1, in which each class weighs alike, however rare."""
    mixed_precision: Literal["auto", "bf16", "off"] = "auto"
    """bfloat16 autocast around forward and loss. auto: on hpu and cuda."""
    compile: bool = False
    """Whether to compile the model (torch.compile; hpu_backend on an HPU)."""
    sync_batch_norm: bool = False
    """Whether batch normalisation computes its statistics over all workers of a trial."""
    loader_workers: int = 0
    """Processes per worker that prepare batches. 0: the worker prepares them itself."""
    train_samples: int = 0
    """Training samples used, from the first on. 0 means all."""
    val_samples: int = 0
    """Validation samples used, from the first on. 0 means all."""
    hold_out: bool = False
    """Whether half of the validation data is test data, which no trial of the search sees. Data with a test part of its
    own keeps its validation data whole."""

    def rules(self) -> dict[str, bool]:
        """Return each rule in words, and whether it is kept."""
        return super().rules() | {
            "lr must be above 0": self.lr > 0,
            "lr, weight_decay and clip_norm must be finite": max(self.lr, self.weight_decay, self.clip_norm) < math.inf,
            "batch_size must be at least 1": self.batch_size >= 1,
            "momentum must be from 0 to below 1": 0 <= self.momentum < 1,
            "weight_decay must not be negative": self.weight_decay >= 0,
            "warmup must be from 0 to 1": 0 <= self.warmup <= 1,
            "label_smoothing must be from 0 to below 1": 0 <= self.label_smoothing < 1,
            "pass_size must not be negative": self.pass_size >= 0,
            "clip_norm must not be negative": self.clip_norm >= 0,
            "nesterov needs a momentum above 0": self.momentum > 0 or self.optimizer != "sgd" or not self.nesterov,
            "ema_decay must be from 0 to below 1": 0 <= self.ema_decay < 1,
            "loader_workers must not be negative": self.loader_workers >= 0,
            "train_samples and val_samples must not be negative": min(self.train_samples, self.val_samples) >= 0,
        }

    def make_optimizer(self, parameters: Iterable[nn.Parameter], device: torch.device) -> Optimizer:
        """Return the optimizer of ``parameters``, which are on ``device``."""
        momentum = {"momentum": self.momentum, "nesterov": self.nesterov} if self.optimizer == "sgd" else {}
        make = DEVICE_TYPES[device.type].optimizer_class(self.optimizer)
        return make(parameters, lr=self.lr, weight_decay=self.weight_decay, **momentum)


def passes_of(config: TrainingConfig, workers: int) -> int:
    """Return how many equal passes a worker takes for its share of a batch.

    Raises:
        ValueError: The batch cannot be split evenly.
    """
    share, rest = divmod(config.batch_size, workers)
    if rest:
        raise ValueError(
            f"batch_size must be a multiple of the {workers} workers that share it, but got {config.batch_size}"
        )
    passes = -(-share // config.pass_size) if config.pass_size else 1
    if share % passes:
        raise ValueError(
            f"batch_size must be such that a worker's share of it is {passes} equal passes of at most pass_size, but "
            f"got batch_size={config.batch_size}, which is {share} samples for each of {workers}, and "
            f"pass_size={config.pass_size}"
        )
    return passes


def check_classes(config: TrainingConfig, classes: int) -> None:
    """See that the metrics of a classifier make sense for so many classes.

    Raises:
        ValueError: All classes would be among the five most probable.
    """
    if config.top5_accuracy and classes <= TOP:
        raise ValueError(f"top5_accuracy needs more than {TOP} classes, but the data has {classes}; leave it out")


def check_batch(config: TrainingConfig, workers: int, samples: int) -> None:
    """See that a batch can be split evenly among ``workers``, and that there are enough ``samples`` to fill it.

    Raises:
        ValueError: It cannot, or there are too few.
    """
    passes_of(config, workers)
    if config.batch_size > samples:
        raise ValueError(
            f"batch_size must be at most the {samples} training samples, but got {config.batch_size}; "
            f"--set batch_size=N fixes it for all trials"
        )
