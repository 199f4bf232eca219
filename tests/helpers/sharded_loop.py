"""A train loop of one's own that shards its model with torch's FSDP2 and saves with torch.distributed.checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from gaudi_tune.group.warm_trainable import warm_trainable
from gaudi_tune.training.session import Sharded, get_checkpoint, get_context, report

POINTS = torch.linspace(-1, 1, 96).reshape(32, 3)


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))


def loss_of(model: nn.Module, points: torch.Tensor = POINTS) -> torch.Tensor:
    return (model(points)[:, 0] - points.prod(dim=1)).square().mean()


def sharded(config: dict[str, Any]) -> None:
    """Train a network whose weights are shared out among the workers; rank 1 dies once where the configuration says."""
    rank, world = get_context().get_world_rank(), get_context().get_world_size()
    model, killed = network(), Path(config["killed"]) if "killed" in config else None
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def die_once() -> None:
        if killed is not None and rank == 1 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def state_of(epoch: int) -> dict[str, Any]:
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments, "epoch": epoch}

    def save_part(folder: Path) -> None:
        if config.get("dies") == "saving" and epoch == 2:
            die_once()
        save(state_of(epoch), checkpoint_id=folder)

    epoch = done = 0
    if (checkpoint := get_checkpoint()) is not None:
        state = state_of(0)
        load(state, checkpoint_id=checkpoint.path)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        done = state["epoch"]
    for epoch in range(done + 1, 5):
        if config.get("dies") == "training" and epoch == 2:
            die_once()
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(model, POINTS[rank::world]).backward()
            optimizer.step()
        with torch.no_grad():
            loss = loss_of(model)
        weights: dict[str, Any] = model.state_dict()
        parts = sum(weight.to_local().numel() for weight in weights.values())
        report({"epoch": epoch, "loss": loss, "parts": parts, "worker_pid": os.getpid()}, save=Sharded(save_part))
    dist.barrier()


class Movable:
    """A trial actor that may be told that it is on another node than its workers."""

    group: Any

    def go_away(self) -> None:
        """Be on another node from now on, until the next group of workers starts."""
        self.group._node = "another"


def movable(parameters: dict[str, Any], config: dict[str, Any]) -> Any:
    """Return the trainable with these parameters, which can go away."""
    return type("Movable", (Movable, warm_trainable(**parameters)), {})(config)
