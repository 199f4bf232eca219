"""Small train loops that misbehave on purpose, for workers to import."""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import ray.train.collective
import torch
from ray import tune
from ray.train import Checkpoint

from gaudi_tune.devices.find import worker_device
from gaudi_tune.training.keep import keep
from gaudi_tune.training.session import get_checkpoint, get_context, report, trial_folder
from gaudi_tune.training.trial_config import TrialConfig

AT_START = dict(os.environ)
"""The variables of a worker when it unpickles its loop."""


@dataclass(frozen=True, kw_only=True)
class QuadraticConfig(TrialConfig):
    """Configuration of :func:`quadratic`."""

    x: float
    fail_at: int = 0
    """Epoch at which the loop raises; 0 means never."""
    diverge_at: int = 0
    """Epoch from which the loss is NaN; 0 means never."""
    silent_at: int = 0
    """Epoch whose report lacks the score; 0 means none."""
    epochs_of_loop: int = 0
    """Epochs after which the loop returns by itself; 0 means at its budget."""
    done_at: int = 0
    """Epoch whose report says that the trial is done; 0 means none. Its reports tell MLflow's experiment, too."""
    seconds: float = 0.0
    """How long an epoch takes."""
    waits_for: str = ""
    """File without which no trial begins."""


def quadratic(config: dict[str, Any]) -> None:
    """Report a score that rises to 1 - x² with the epochs; saves and goes on from the epoch number alone."""
    trial = QuadraticConfig.from_dict(config)
    while trial.waits_for and not Path(trial.waits_for).exists():
        time.sleep(0.05)
    for epoch in range(_epochs_done() + 1, (trial.epochs_of_loop or trial.epochs) + 1):
        if epoch == trial.fail_at:
            raise RuntimeError(f"failed on purpose at epoch {epoch}")
        time.sleep(trial.seconds)
        loss = math.nan if trial.diverge_at and epoch >= trial.diverge_at else trial.x**2 / epoch
        score = {"score": 1 - trial.x**2 - 1 / epoch} if epoch != trial.silent_at else {}
        metrics = {"epoch": epoch, **score, "train_loss": loss, "noise": torch.rand((), device=worker_device())}
        if trial.done_at:
            metrics |= {"done": epoch == trial.done_at, "runs_in": os.environ["MLFLOW_EXPERIMENT_NAME"]}
        report(metrics, save=partial(_write, epoch=epoch))


def failing_on_one_rank(config: dict[str, Any]) -> None:
    """Raise on rank 1 while rank 0 waits for it in a collective."""
    if get_context().get_world_rank() == 1:
        raise RuntimeError("rank 1 failed on purpose")
    torch.distributed.barrier()
    report({"epoch": 1})


def uneven(config: dict[str, Any]) -> None:
    """Report on each rank as often as the configuration says."""
    for epoch in range(1, config["reports"][get_context().get_world_rank()] + 1):
        report({"epoch": epoch})


def meeting(config: dict[str, Any]) -> None:
    """Report on rank 0 what all ranks have heard of it, if they have heard the same."""
    rank = get_context().get_world_rank()
    heard = ray.train.collective.broadcast_from_rank_zero(f"{config['said']} of rank {rank}")
    ray.train.collective.barrier()
    by_rank: list[Any] = [None] * get_context().get_world_size()
    torch.distributed.all_gather_object(by_rank, heard)
    report({"epoch": 1, "heard": heard if set(by_rank) == {heard} else by_rank})


def silent(config: dict[str, Any]) -> None:
    """Return without a report."""


def environment_at_start(config: dict[str, Any]) -> None:
    """Report a variable as it was before the first trial; Python's switch; and where gloo listens."""
    name = "PT_HPU_GPU_MIGRATION"
    for epoch in (1, 2):
        found = {name: AT_START.get(name, "unset"), "garbage_is_looked_for": gc.isenabled()}
        found["interface"] = os.environ.get("GLOO_SOCKET_IFNAME", "unset")
        report({"epoch": epoch, "worker_pid": os.getpid(), **found})


def _epochs_done() -> int:
    checkpoint = get_checkpoint()
    return 0 if checkpoint is None else int(Path(checkpoint.path, "epoch.txt").read_text())


def _write(directory: Path, epoch: int) -> None:
    (directory / "epoch.txt").write_text(str(epoch))
    (directory / "weights").write_bytes(bytes(2000))  # more than the least --checkpoint-budget


def any_loop(config: dict[str, Any]) -> None:
    """Run the loop that the configuration names, so that tests of many loops share one worker group."""
    loop, rest = config["loop"], {name: value for name, value in config.items() if name != "loop"}
    here = globals()
    if loop in ("hugging_face", "lightning"):
        here = importlib.import_module("tests.helpers.trainer_loops").LOOPS  # takes seconds to import
    train_loop = here[loop] if loop in here else importlib.import_module(f"trainables.{loop}").train_loop
    train_loop(rest)


def keeping(config: dict[str, Any]) -> None:
    """Report whether zeros had to be made, and with ``changes`` change one of those that are kept."""
    made: list[int] = []

    def make() -> dict[str, torch.Tensor]:
        made.append(1)
        return {"weight": torch.zeros(1000)}

    weight = keep("zeros", make)["weight"]
    assert not weight.any()
    if config["changes"]:
        weight.data[3] = 1.0
    report({"made": len(made)})


def untidy(config: dict[str, Any]) -> None:
    """Change every global switch and leave memory and a file open; ``finally`` writes to ``config["log"]``."""
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.set_num_threads(2)
    torch.manual_seed(123)
    hoard: list[Any] = [torch.ones(1000)]
    hoard.append(hoard)
    try:
        for epoch in range(1, 100):
            report({"epoch": epoch})
    except Exception:
        Path(config["log"]).write_text("swallowed")  # a stop must not be taken for an error
    finally:
        with Path(config["log"]).open("a") as log:
            log.write("finally")


def stopping_once(config: dict[str, Any]) -> None:
    """Stop the own process, as one that hangs, in the second epoch of the first attempt."""
    been_here = Path(config["been_here"])
    for epoch in range(_epochs_done() + 1, 4):
        if epoch == 2 and not been_here.exists():
            been_here.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(60)  # another thread gets the signal, perhaps a moment later
        save = partial(_write, epoch=epoch)
        report({"epoch": epoch, "worker_pid": os.getpid()}, save=save)


def dying(config: dict[str, Any]) -> None:
    """Kill the own process in the second epoch of every attempt, and write a line to ``config["log"]`` for each."""
    with Path(config["log"]).open("a") as log:
        log.write("begun\n")
    report({"epoch": 1})
    os.kill(os.getpid(), signal.SIGKILL)


def failing(config: dict[str, Any]) -> None:
    """Fail in the second of three epochs as ``config["way"]`` says, with messages that speak of other failures."""
    for epoch in range(_epochs_done() + 1, 4):
        if epoch == 2:
            fail = WAYS_TO_FAIL.get(config["way"])
            if fail is not None:
                fail(config)
        loss = math.nan if config["way"] == "diverge" and epoch == 2 else 0.5
        score = None if config["way"] == "report None" and epoch == 2 else epoch / 10
        report({"epoch": epoch, "score": score, "train_loss": loss}, save=partial(_write, epoch=epoch))


def _raise_value_error(config: dict[str, Any]) -> None:
    raise ValueError("out of memory on the device: diverged, as its node has died")


def _raise_out_of_memory(config: dict[str, Any]) -> None:
    raise torch.OutOfMemoryError("the train loop's report is unusable")


def _kill_worker(config: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_worker_once(config: dict[str, Any]) -> None:
    killed = Path(config["log"])
    if not killed.exists():
        killed.touch()
        _kill_worker(config)


def _spoil_process(config: dict[str, Any]) -> None:
    """Leave a copy of the worker, a closed output and no folders."""
    if os.fork() == 0:
        report({"epoch": 3, "score": 9.0})  # an error in the copy, which ends with it
    print("x" * 5_000_000)
    sys.stdout.close()
    os.close(2)
    shutil.rmtree(os.getcwd())
    shutil.rmtree(trial_folder())


def _report_oddities(config: dict[str, Any]) -> None:
    """Report what neither JSON nor a database takes, and names that mean something to Tune, but "done"."""
    odd = {"big": 10**400, "text": "\ud800" * 10**6, "a/\ud800": Decimal("nan"), "": True, "../x": Fraction(1, 3)}
    tunes = {"time_this_iter_s": "x", "config": 1, "trial_id": 2, "training_iteration": 7, "pid": "p"}
    report({"epoch": 2, "score": 0.2, "train_loss": 0.5, **odd, **tunes}, save=partial(_write, epoch=2))


WAYS_TO_FAIL: dict[str, Callable[[dict[str, Any]], None]] = {
    "raise": _raise_value_error,
    "run out of memory": _raise_out_of_memory,
    "be killed once": _kill_worker_once,
    "be killed": _kill_worker,
    "spoil the process": _spoil_process,
    "report oddities": _report_oddities,
}
"""What happens in the second epoch of :func:`failing`, besides "diverge", "report None" and "finish"."""


def counting(config: dict[str, Any]) -> None:
    """Report three times, first the number that the configuration says, and ``each_epoch`` times the same number, with
    what there is ``also``; from ``alone_from`` on, no worker may have company."""
    for epoch in range(_epochs_done(), 3):
        if get_context().get_world_size() > 1 and epoch >= config.get("alone_from", 3):
            raise RuntimeError("failed on purpose")
        number = config["first"] + epoch // config.get("each_epoch", 1)
        report({"epoch": number, **config.get("also", {})}, save=partial(_write, epoch=epoch + 1))


def writing_now_and_then(config: dict[str, Any]) -> None:
    """Report six epochs, and write a checkpoint with every third, into a folder that is gone after the report."""
    for epoch in range(_epochs_done() + 1, 7):
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder), epoch=epoch)
            checkpoint = Checkpoint.from_directory(folder) if epoch % 3 == 0 else None
            tune.report({"trained": epoch, "score": 1.0, "worker_pid": os.getpid()}, checkpoint=checkpoint)


def writing_parts(config: dict[str, Any]) -> None:
    """Report two epochs as in Ray Train: with the first, each rank gives a folder with its part
    and its state, which is then gone."""
    rank = get_context().get_world_rank()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"part-{rank}").write_text(f"of rank {rank}")
        Path(folder, "random").write_text(str(rank) * 2**22)  # as large as a state, in the same place on each rank
        ray.train.report({"epoch": 1}, checkpoint=Checkpoint.from_directory(folder))
    ray.train.report({"epoch": 2})


def forgetful(config: dict[str, Any]) -> None:
    """Report four epochs with something to save, and never ask for it."""
    for epoch in range(1, 5):
        report({"epoch": epoch, "score": config.get("x", 0.0) / epoch}, save=partial(_write, epoch=epoch))


def giving_back(config: dict[str, Any]) -> None:
    """Raise on rank 1 while rank 0 trains; each rank adds its number to ``config["log"]`` when Python exits."""
    rank = get_context().get_world_rank()

    def note() -> None:
        with Path(config["log"]).open("a") as log:
            log.write(f"{rank}\n")

    atexit.register(note)
    report({"epoch": 1})
    if rank == 1:
        time.sleep(1)
        raise RuntimeError("rank 1 failed on purpose")
    time.sleep(300)


def lingering(config: dict[str, Any]) -> None:
    """Report two epochs, and clean up until a file is there."""
    try:
        for epoch in (1, 2):
            report({"epoch": epoch})
    finally:
        while not Path(config["until"]).exists():
            time.sleep(0.1)


def ending(config: dict[str, Any]) -> None:
    """End the process."""
    os._exit(3)


HABANAS = ("LD_PRELOAD", "TORCH_DEVICE_BACKEND_AUTOLOAD", "PT_HPU_LAZY_MODE")


def leaking(config: dict[str, Any]) -> None:
    """Leave so many megabytes behind on the device, or use them for a moment, and report which process that is."""
    used = torch.ones(config["megabytes"] * 2**18, device=worker_device())
    if not config["frees"]:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(used))  # as a library in C does that forgets it
    pid_and_variables = {"worker_pid": os.getpid(), **{name: os.environ.get(name) for name in HABANAS}}
    report({"epoch": 1, **pid_and_variables}, save=partial(_write, epoch=1))
