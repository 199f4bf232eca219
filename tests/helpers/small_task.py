"""A classifier that trains in milliseconds, with all that can go wrong: dropout, noise, uneven ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from gaudi_tune.recipes.loading import Batch
from gaudi_tune.recipes.loop import train
from gaudi_tune.recipes.schedules import ScheduleKind
from gaudi_tune.recipes.task import Task
from gaudi_tune.recipes.training_config import TrainingConfig
from gaudi_tune.training.fresh_start import fresh_start

FEATURES, CLASSES = 6, 3


class Points(Dataset[Any]):
    """Points of three classes; training points move a little each time they are seen."""

    def __init__(self, size: int, noise: float) -> None:
        generator = torch.Generator().manual_seed(size)
        self.labels = torch.randint(CLASSES, (size,), generator=generator)
        self.points = torch.randn(size, FEATURES, generator=generator) + 2 * nn.functional.one_hot(
            self.labels, FEATURES
        )
        self.noise = noise
        self.augments = noise > 0

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> Batch:
        points = self.points[indices]
        return {"points": points + self.noise * torch.randn_like(points), "labels": self.labels[indices]}


@dataclass(frozen=True, kw_only=True)
class SmallConfig(TrainingConfig):
    """Published hyperparameters by default, so that a test says only what it is about."""

    lr: float = 0.1
    batch_size: int = 8
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: ScheduleKind = "cosine"
    dropout: float = 0.2
    noise: float = 0.1
    size: int = 45

    def graph(self, workers: int) -> dict[str, Any]:
        """Return what the graphs of the model depend on."""
        return super().graph(workers) | {"dropout": self.dropout}


def small_task(config: SmallConfig) -> Task:
    """Return a task on the CPU."""
    fresh_start(config.seed)
    network = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(16, CLASSES))
    return Task(
        model=network,
        forward=lambda model, batch: model(batch["points"]),
        train_data=Points(config.size, config.noise),
        val_data=Points(131, 0.0),
        test_data=Points(77, 0.0),
    )


def small_loop(config: dict[str, Any]) -> None:
    """Train one trial."""
    small = SmallConfig.from_dict(config)
    train(small_task(small), small)
