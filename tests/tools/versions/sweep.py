"""A sweep with two workers a trial that is killed, resumed and looked at, in whatever environment this runs.

    python -m tests.tools.versions.sweep FOLDER

It ends with status 0 if every trial has ended once in the summary, in the study and in MLflow, with the loss of a trial
that nothing disturbed, and if the page answered. It takes a minute and a half on two busy cores.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import ray.train
import torch
import torch.distributed as dist
from mlflow import MlflowClient
from optuna.trial import TrialState
from ray import tune

from gaudi_tune import Experiment, main
from tests.helpers.page_client import PageClient
from tests.helpers.stored_study import stored_trials

TRIALS, EPOCHS, WORKERS = 4, 4, 2
NAME = "versions"
WITHIN_S = 400
"""How long a part of it may take on a busy machine."""


def train_loop(config: dict[str, Any]) -> None:
    """Descend to the minimum of a parabola on two workers, which agree on each step."""
    x, begin = torch.tensor([1.0]), 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"), weights_only=True)
        x, begin = state["x"], int(state["epoch"])
    assert dist.get_world_size() == WORKERS
    for epoch in range(begin + 1, config["epochs"] + 1):
        time.sleep(0.5)
        gradient = 2 * x * (1 + ray.train.get_context().get_world_rank())
        dist.all_reduce(gradient)
        x = x - config["lr"] * gradient / 3
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"x": x, "epoch": epoch}, Path(folder, "state.pt"))
            ray.train.report({"loss": float(x**2)}, checkpoint=ray.train.Checkpoint.from_directory(folder))


EXPERIMENT = Experiment(
    name=NAME, train_loop=train_loop, space={"lr": tune.loguniform(0.01, 0.4)}, metric="loss", mode="min"
)


class Driver:
    """The command line of a sweep in a process of its own."""

    def __init__(self, command: Sequence[str], folder: Path, **variables: str) -> None:
        """Start it in a folder, with these variables changed."""
        self.printed = ""
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=folder, env={**os.environ, **variables}, start_new_session=True,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.printed += line

    def wait_for(self, what: str) -> str:
        """Return the first match in what it has printed, once there is one."""
        until = time.monotonic() + WITHIN_S
        while (found := re.search(what, self.printed, re.MULTILINE)) is None:
            assert self.process.poll() is None and time.monotonic() < until, self.printed
            time.sleep(0.2)
        return found.group(found.re.groups)

    def kill(self) -> None:
        """Kill it as a machine does that runs out of memory, and wait for what it had started."""
        started = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        waited_for = [each for each in started if "agent" not in " ".join(_title(each)).lower()]  # they look rarely
        _, alive = psutil.wait_procs(waited_for, timeout=60)
        assert not alive, [_title(each) for each in alive]

    def end(self) -> None:
        """See to it that nothing of it is left."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(120)


def _title(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def check(folder: Path) -> None:
    """Check what the sweep has left on disk."""
    sweep = folder / "results" / NAME
    summary = json.loads((sweep / "summary.json").read_text())
    assert summary["complete"] and sum(summary["counts"].values()) == TRIALS, summary["counts"]
    assert "failed" not in summary["counts"], summary["counts"]
    for trial in summary["trials"]:
        assert math.isclose(trial["value"], (1 - 2 * trial["config"]["lr"]) ** (2 * EPOCHS), rel_tol=1e-3), trial
    trials = stored_trials(sweep)
    assert len(trials) == TRIALS
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    known = client.get_experiment_by_name(NAME)
    assert known is not None
    runs = client.search_runs([known.experiment_id])
    told = sorted(int(run.data.tags["trial"]) for run in runs if "mlflow.parentRunId" in run.data.tags)
    assert told == list(range(1, TRIALS + 1)), told
    assert {run.info.status for run in runs} == {"FINISHED"}


def start(folder: Path, *options: str) -> Driver:
    """Start or resume the sweep."""
    uri = f"sqlite:///{folder}/mlflow.db"
    shared = ["--storage", str(folder / "results"), "--tracking-uri", uri, "--checkpoint-minutes", "0"]
    command = [sys.executable, "-m", __spec__.name, "--", *options, *shared]
    return Driver(command, Path.cwd(), MLFLOW_TRACKING_URI=uri)


def run(folder: Path) -> None:
    """Start, kill, resume and check the sweep."""
    options = ("--name", NAME, "--num-samples", str(TRIALS), "--epochs", str(EPOCHS), "--search", "random")
    first = start(folder, *options, "--workers-per-trial", str(WORKERS), "--scheduler", "fifo", "--device", "cpu")
    try:
        page = PageClient(first.wait_for(r"^page +(\S+)$"))
        first.wait_for(r"trial 001 .* finished")
        assert page.until(lambda shown: shown.head.get("metric")) == "loss"
        time.sleep(1.0)  # the second trial trains
        first.kill()
    finally:
        first.end()
    second = start(folder, "--resume", NAME)
    try:
        status = second.process.wait(WITHIN_S)
        second.reader.join(10)
        assert status == 0, second.printed
    finally:
        second.end()
    check(folder)


if __name__ == "__main__":
    if sys.argv[1] == "--":
        del sys.argv[1]
        main(EXPERIMENT)
    else:
        run(Path(sys.argv[1]).resolve())
