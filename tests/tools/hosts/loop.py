"""An experiment that trains a small model and writes down where: the trials of tests.tools.faults, over hosts."""

from __future__ import annotations

import copy
import json
import os
import socket
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from gaudi_tune.training.checkpoint import read_state, write_state
from gaudi_tune.training.session import Sharded, get_checkpoint, report, save_if_asked
from tests.tools.faults.accumulating import ACCUMULATING, HURRY, AccumulatingConfig, added

LOG = "trained"
"""Below the folder of orders: a line for each epoch that a rank has begun."""
STEPS = 20


@dataclass(frozen=True, kw_only=True)
class HostsConfig(AccumulatingConfig):
    """Configuration of :func:`training`."""

    sharded: bool = False
    """Whether each rank has a part of the model, and writes that."""


def training(config: dict[str, Any]) -> None:
    """Train a linear model on all ranks together, and carry a number from epoch to epoch."""
    trial, checkpoint = HostsConfig.from_dict(config), get_checkpoint()
    torch.manual_seed(trial.seed)
    model: nn.Module = nn.Linear(64, 2)
    is_group = dist.is_initialized() and dist.get_world_size() > 1
    rank, width = (dist.get_rank(), dist.get_world_size()) if is_group else (0, 1)
    if trial.sharded:
        fully_shard(model, mesh=init_device_mesh("cpu", (width,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state: dict[str, Any] = {"epoch": 0, "total": 0.0, "model": model.state_dict()}
    hurry = Path(trial.orders) / HURRY
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            if trial.sharded:
                load(state, checkpoint_id=directory)
            else:
                state = read_state(Path(directory))
        model.load_state_dict(state["model"])
    done, total = state["epoch"], state["total"]
    network = DistributedDataParallel(model) if is_group and not trial.sharded else model
    for epoch in range(done + 1, trial.epochs + 1):
        _note(trial, epoch=epoch, rank=rank, width=width)
        begun = {"epoch": epoch - 1, "total": total, "model": copy.deepcopy(model.state_dict())}
        for _ in range(STEPS):
            inputs = torch.randn(32, 64)
            loss = (network(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not trial.sharded:
                save_if_asked(lambda directory: write_state(directory, begun))  # noqa: B023  (called at once)
            time.sleep(0 if hurry.exists() else trial.epoch_s / STEPS)
        part = torch.tensor(added(total, trial.x, epoch) / width, dtype=torch.float64)
        if is_group:
            dist.all_reduce(part)
        total = float(part)
        state = {"epoch": epoch, "total": total, "model": model.state_dict()}
        part_of = Sharded(partial(_save_part, state)) if trial.sharded else partial(_save, state)
        report({"epoch": epoch, "score": total / epoch, "train_loss": float(loss), "taken_over": 0}, save=part_of)


def _save(state: dict[str, Any], directory: Path) -> None:
    write_state(directory, state)


def _save_part(state: dict[str, Any], directory: Path) -> None:
    save(state, checkpoint_id=directory)


def _note(trial: HostsConfig, **what: int) -> None:
    where = {"master": os.environ.get("MASTER_ADDR", ""), "port": int(os.environ.get("MASTER_PORT", 0))}
    line = {"host": socket.gethostname(), "x": trial.x, "pid": os.getpid(), **where, **what}
    with (Path(trial.orders) / LOG).open("a") as log:
        log.write(json.dumps(line) + "\n")


OVER_HOSTS = replace(ACCUMULATING, train_loop=training, config_class=HostsConfig)
