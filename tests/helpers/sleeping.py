"""An experiment whose trials take time and no cores, so that eight workers fit on two."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ray import tune

from gaudi_tune import Budget, Experiment, Recipe
from gaudi_tune.devices.find import worker_device
from gaudi_tune.training.session import get_checkpoint, report
from gaudi_tune.training.trial_config import TrialConfig

EPOCHS = 9


@dataclass(frozen=True, kw_only=True)
class SleepingConfig(TrialConfig):
    """Configuration of :func:`sleeping`."""

    x: float
    epoch_s: float = 0.5
    """Seconds of an epoch."""


def sleeping(config: dict[str, Any]) -> None:
    """Own the device, sleep through the epochs, and report a score that rises to 1 - x² with them."""
    trial, checkpoint, done = SleepingConfig.from_dict(config), get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            done = int((Path(directory) / "epoch.txt").read_text())
    weight = torch.ones(1, device=worker_device())
    for epoch in range(done + 1, trial.epochs + 1):
        time.sleep(trial.epoch_s)
        score = 1 - trial.x**2 - float(weight) / epoch
        report({"epoch": epoch, "score": score}, save=lambda directory, e=epoch: _write(directory, e))  # type: ignore[misc]


def _write(directory: Path, epoch: int) -> None:
    (directory / "epoch.txt").write_text(str(epoch))


SLEEPING = Experiment(
    name="sleeping",
    train_loop=sleeping,
    config_class=SleepingConfig,
    space={"x": tune.uniform(-1.0, 1.0)},
    baseline={"x": 0.9},
    recipes={"sample": Recipe(settings=dict, budget=Budget(epochs=EPOCHS), num_samples=64)},
    check=lambda config: [f"nothing to load, epochs of {config.epoch_s} s"],
    load_line="{checkpoint}/epoch.txt",
    display_params=("x",),
    metric="score",
)
