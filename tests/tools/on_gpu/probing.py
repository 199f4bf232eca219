"""An experiment whose trials say what they find in their worker: its memory, its process group, how it was started."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

from gaudi_tune import Budget, Experiment
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.training.session import get_checkpoint, report
from gaudi_tune.training.trial_config import TrialConfig

LARGEST = 40
"""The largest width whose trial has enough memory."""
EPOCHS = 3
KILLED = "killed"
"""A file of the folder of orders: the worker of a trial has been killed."""


@dataclass(frozen=True, kw_only=True)
class ProbingConfig(TrialConfig):
    """Configuration of :func:`probing`."""

    width: int
    """How much memory a trial takes."""
    orders: str = ""
    """A folder. The worker of the first trial that has a checkpoint there is killed."""


def probing(config: dict[str, Any]) -> None:
    """Take memory on the device, use the process group, and report what there is."""
    given = ProbingConfig.from_dict(config)
    device = worker_device()
    device_type = DEVICE_TYPES[device.type]
    parent = " ".join(psutil.Process(os.getppid()).cmdline())
    found = {
        "memory_before": device_type.memory_in_use() if device_type.measures_memory else 0.0,
        "pid": os.getpid(),
        "is_copy": "fork_server" in parent,
        "backend": dist.get_backend(),
        "device": str(device),
    }
    if given.width > LARGEST:
        take_all(device)
    weights = torch.ones(given.width, 2**18, device=device)
    for epoch in range(_done() + 1, EPOCHS + 1):
        summed = torch.ones(1, device=device)
        dist.all_reduce(summed)
        weights.mul_(1 + 1e-3 * summed)
        score = 1 - (given.width - 32) ** 2 / 1000 + epoch / 100
        report({"score": score, "epoch": epoch, **found, "sum": float(summed)}, save=_saver(epoch))
        if epoch == 2 and not Path(given.orders, KILLED).exists():
            Path(given.orders, KILLED).touch()
            os.kill(os.getpid(), signal.SIGKILL)


def take_all(device: torch.device) -> None:
    """Run out of the device's memory; on a CPU, whose memory is the host's, only say so."""
    if device.type == "cpu":
        raise torch.OutOfMemoryError("as a GPU says it")
    torch.empty(2**45, dtype=torch.uint8, device=device)


def _done() -> int:
    checkpoint = get_checkpoint()
    return int(Path(checkpoint.path, "epoch").read_text()) if checkpoint else 0


def _saver(epoch: int) -> Any:
    return lambda folder: Path(folder, "epoch").write_text(str(epoch))


def space(trial: Any) -> None:
    """Suggest a width; most need more memory than there is."""
    trial.suggest_int("width", 1, 128)


PROBING = Experiment(
    name="probing",
    train_loop=probing,
    config_class=ProbingConfig,
    space=space,
    baseline={"width": 8},
    budget=Budget(epochs=EPOCHS),
    metric="score",
    mode="max",
)
