"""An experiment whose trials carry a number from epoch to epoch, and that goes wrong when it is told to.

A trial that goes on from another place than it should ends with another score.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray.train
import torch
from ray import tune

from gaudi_tune import Budget, Experiment, Recipe
from gaudi_tune.devices.find import worker_device
from gaudi_tune.training.checkpoint import read_state, write_state
from gaudi_tune.training.session import get_checkpoint, report
from gaudi_tune.training.trial_config import TrialConfig

EPOCHS = 8
FILL_GB = 12
"""How much of the host's memory, in GiB, a trial takes that was ordered to fill it, if nobody ends it before."""
HURRY = "hurry"
"""The order to take no time any more; it is for all, and for good."""
ALIVE = "alive"
"""Below the folder of orders: a file for each worker's process, written at the beginning of each epoch."""


@dataclass(frozen=True, kw_only=True)
class AccumulatingConfig(TrialConfig):
    """Configuration of :func:`accumulating`."""

    x: float
    orders: str = ""
    """Folder in which a file orders the trial that takes it first to go wrong."""
    epoch_s: float = 1.0
    """Seconds of an epoch of one worker; more share it."""


def added(total: float, x: float, epoch: int) -> float:
    """Return the total after an epoch: what it was before, halved, and what the epoch adds."""
    return 0.5 * total + (1 - x**2) * epoch


def accumulating(config: dict[str, Any]) -> None:
    """Own the device, add to the total in each epoch, and do what is ordered.

    With pbt a trial may go on from the total of another, whose epochs between are then nobody's to report:
    ``taken_over`` says how many epochs that total had (0: it is the trial's own).
    """
    trial, checkpoint = AccumulatingConfig.from_dict(config), get_checkpoint()
    done, total, taken_over = 0, 0.0, 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = read_state(Path(directory))
            done, total = state["epoch"], state["total"]
            taken_over = state["taken_over"] if state["x"] == trial.x else done
    weight = torch.ones(1, device=worker_device())
    for epoch in range(done + 1, trial.epochs + 1):
        (Path(trial.orders) / ALIVE / str(os.getpid())).write_text(repr(trial.x))
        loss = float(weight) / epoch
        if (order := _order_of_before(trial, epoch) or _wait_for_order(trial, epoch)) is not None:
            loss = ORDERS[order](epoch)
        total = added(total, trial.x, epoch)
        state = {"epoch": epoch, "total": total, "x": trial.x, "pid": os.getpid(), "taken_over": taken_over}
        report(
            {"epoch": epoch, "score": total / epoch, "train_loss": loss, "taken_over": taken_over},
            save=lambda directory, state=state: write_state(directory, state),  # type: ignore[misc]
        )


def _order_of_before(trial: AccumulatingConfig, epoch: int) -> str | None:
    """Return what failed the trial in this epoch before: it does so again if a resumed sweep trains it again."""
    for name in FAILING:
        taken = Path(trial.orders) / f"{name}.{trial.x!r}"
        if taken.exists() and taken.read_text() == str(epoch):
            return name
    return None


def _wait_for_order(trial: AccumulatingConfig, epoch: int) -> str | None:
    """Take the time of an epoch, and return the order that was there first, which nobody else gets then."""
    orders, until = Path(trial.orders), time.monotonic() + trial.epoch_s / ray.train.get_context().get_world_size()
    while time.monotonic() < until and not (orders / HURRY).exists():
        for name in ORDERS:
            taken = orders / f"{name}.{trial.x!r}"
            try:
                (orders / name).rename(taken)
            except FileNotFoundError:
                continue
            taken.write_text(str(epoch))
            return name
        time.sleep(0.05)
    return None


def _raise(epoch: int) -> float:
    raise RuntimeError(f"raised by order in epoch {epoch}")


def _run_out_of_memory(epoch: int) -> float:
    raise torch.OutOfMemoryError(f"out of memory by order in epoch {epoch}")


def _diverge(epoch: int) -> float:
    return math.nan


def _hang(epoch: int) -> float:
    while True:
        time.sleep(1)


def _fill_host(epoch: int) -> float:
    taken: list[bytes] = []
    while len(taken) < FILL_GB * 16:
        taken.append(b"x" * 2**26)
        time.sleep(0.01)  # Ray looks every quarter of a second
    raise MemoryError(f"nobody minded that {FILL_GB} GiB of the host's memory were taken")


FAILING = {"exception": _raise, "memory": _run_out_of_memory, "nan": _diverge}
"""What fails a trial."""
ORDERS = {**FAILING, "hang": _hang, "host-memory": _fill_host}
"""What a train loop can be ordered to do in an epoch; those that return give its loss."""

ACCUMULATING = Experiment(
    name="accumulating",
    train_loop=accumulating,
    config_class=AccumulatingConfig,
    space={"x": tune.uniform(-1.0, 1.0)},
    baseline={"x": 0.9},
    recipes={"sample": Recipe(settings=dict, budget=Budget(epochs=EPOCHS), num_samples=8)},
    check=lambda config: [f"nothing to load, epochs of {config.epoch_s} s"],
    load_line="{checkpoint}/state.pt",
    display_params=("x",),
    metric="score",
)
