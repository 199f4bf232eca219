"""An experiment that trains a small model and writes down where: the trials of tests.tools.faults, over hosts."""

from __future__ import annotations

import copy
import json
import os
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gaudi_tune.training.checkpoint import read_state, write_state
from gaudi_tune.training.session import get_checkpoint, report, save_if_asked
from tests.tools.faults.accumulating import ACCUMULATING, HURRY, AccumulatingConfig, added

LOG = "trained"
"""Below the folder of orders: a line for each epoch that a rank has begun."""
STEPS = 20


@dataclass(frozen=True, kw_only=True)
class HostsConfig(AccumulatingConfig):
    """Configuration of :func:`training`."""


def training(config: dict[str, Any]) -> None:
    """Train a linear model on all ranks together, and carry a number from epoch to epoch."""
    trial, checkpoint = HostsConfig.from_dict(config), get_checkpoint()
    torch.manual_seed(trial.seed)
    model: nn.Module = nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done, total, hurry = 0, 0.0, Path(trial.orders) / HURRY
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = read_state(Path(directory))
        done, total = state["epoch"], state["total"]
        model.load_state_dict(state["model"])
    is_group = dist.is_initialized() and dist.get_world_size() > 1
    rank, width = (dist.get_rank(), dist.get_world_size()) if is_group else (0, 1)
    network = DistributedDataParallel(model) if is_group else model
    for epoch in range(done + 1, trial.epochs + 1):
        _note(trial, epoch=epoch, rank=rank, width=width)
        begun = {"epoch": epoch - 1, "total": total, "model": copy.deepcopy(model.state_dict())}
        for _ in range(STEPS):
            inputs = torch.randn(32, 64)
            loss = (network(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            save_if_asked(lambda directory: write_state(directory, begun))  # noqa: B023  (called at once)
            time.sleep(0 if hurry.exists() else trial.epoch_s / STEPS)
        part = torch.tensor(added(total, trial.x, epoch) / width, dtype=torch.float64)
        if is_group:
            dist.all_reduce(part)
        total = float(part)
        state = {"epoch": epoch, "total": total, "model": model.state_dict()}
        report(
            {"epoch": epoch, "score": total / epoch, "train_loss": float(loss), "taken_over": 0},
            save=lambda directory, state=state: write_state(directory, state),  # type: ignore[misc]
        )


def _note(trial: HostsConfig, **what: int) -> None:
    where = {"master": os.environ.get("MASTER_ADDR", ""), "port": int(os.environ.get("MASTER_PORT", 0))}
    line = {"host": socket.gethostname(), "x": trial.x, "pid": os.getpid(), **where, **what}
    with (Path(trial.orders) / LOG).open("a") as log:
        log.write(json.dumps(line) + "\n")


OVER_HOSTS = replace(ACCUMULATING, train_loop=training, config_class=HostsConfig)
