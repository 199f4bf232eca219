"""What the driver costs when a sweep is large: ten thousand trials on 512 simulated groups.

The project's own searcher, scheduler, state, tracker (its outbox) and the sweep's snapshot are the real ones. The
groups are simulated: each reports every 10 s of a simulated clock, and waits for the driver, whose time is measured and
counts on that clock. Left out are Ray Tune's own controller with its files, the study's database (other threads
write to it, and to MLflow, in the real time that is not there) and the pictures. Prints, last, one JSON object:

    {"trials": ..., "groups": ..., "busy": ..., "decision_p50_ms": ..., "decision_p99_ms": ..., "driver_ms_first": ...,
     "driver_ms_last": ..., "snapshot_ms_last": ..., "memory_growth_mb": ..., "resume_s": ...}

``busy`` is the share of the groups' time, until the last trial has begun, in which they do not wait for the driver. A
decision is an answer to a report or a proposal; the percentiles are those of the last tenth of the trials.
``driver_ms_*``: the driver's CPU time for one trial, mean of the first and the last hundred. ``resume_s``: reading the
last snapshot, and the study from memory.

    python tests/benchmarks/scale.py [--trials 10000] [--groups 512] [--search gp] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import heapq
import json
import pickle
import pstats
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
from optuna.storages import InMemoryStorage
from ray import tune
from ray.tune.schedulers import TrialScheduler

from experiments import Budget, Experiment
from experiments.sweep.define.options import SweepOptions
from experiments.sweep.define.plan import Plan
from experiments.sweep.on_ray.sweep_run import SweepRun
from experiments.sweep.plan.plan import make_plan, make_searcher
from experiments.sweep.show.trackers.mlflow_tracker import MlflowTracker
from experiments.sweep.state.events import SweepBegan
from trainables.runtime import names

REPORT_EVERY_S = 10.0
SNAPSHOT_EVERY_S = 5.0
SPACE = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "weight_decay": tune.loguniform(1e-6, 1e-2),
    "batch_size": tune.choice([16, 32, 64]),
    "momentum": tune.uniform(0.0, 0.99),
    "optimizer": tune.choice(["sgd", "adamw"]),
    "warmup": tune.uniform(0.0, 0.2),
}


def train_loop(config: dict[str, Any]) -> None:
    """Is never called."""


class Sweep:
    """The driver's part of a sweep, called as Tune calls it, and how long each call took."""

    def __init__(self, plan: Plan, groups: int, study: InMemoryStorage) -> None:
        self.run = SweepRun(plan, make_searcher(plan, study), [MlflowTracker(plan)])
        self.run.views.clear()  # they show it on a terminal and in pictures, now and then
        self.run.searcher.set_max_concurrency(groups)
        self.decisions: list[float] = []
        """Seconds of each proposal and each answer to a report."""
        self.in_all = 0.0
        """Seconds of CPU."""

    def timed(self, call: Callable[[], Any]) -> tuple[Any, float]:
        """Return what a call returns, and its seconds."""
        began, worked = time.perf_counter(), time.thread_time()
        answer = call()
        self.in_all += time.thread_time() - worked
        self.decisions.append(time.perf_counter() - began)
        return answer, self.decisions[-1]

    def propose(self, number: int) -> Any:
        """Return the next trial, None after the last."""
        config = self.run.searcher.suggest(f"id{number}")
        if not isinstance(config, dict):
            return None
        trial = SimpleNamespace(trial_id=f"id{number}", experiment_tag=f"{number}_", config=config, status="RUNNING")
        self.run.scheduler.on_trial_add(None, trial)
        self.run.on_trial_start(0, [], trial)
        return trial

    def report(self, trial: Any, result: dict[str, Any]) -> bool:
        """Hand in a report, and return whether the trial goes on."""
        if self.run.reported(None, trial, result) == TrialScheduler.CONTINUE:
            self.run.searcher.on_trial_result(trial.trial_id, result)
            self.run.on_trial_result(0, [], trial, result)
            return True
        self.run.scheduler.on_trial_complete(None, trial, result)
        self.run.searcher.on_trial_complete(trial.trial_id, result)
        self.run.on_trial_complete(0, [], trial)
        return False

    def snapshot(self, folder: Path) -> None:
        """Write what a resumed sweep must know."""
        (folder / "snapshot.pkl").write_bytes(pickle.dumps(self.run.snapshot()))
        self.run.searcher.save(str(folder / "searcher.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=512)
    parser.add_argument("--search", default="gp")
    parser.add_argument("--profile", action="store_true", help="print what took the driver's time")
    asked = parser.parse_args()
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as storage:
        plan = plan_of(asked.trials, asked.search, Path(storage))
        plan.folder.mkdir(parents=True)
        if asked.profile:
            profile.enable()
        figures = simulate(plan, asked.trials, asked.groups)
        profile.disable()
    if asked.profile:
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(30)
    print(json.dumps({"trials": asked.trials, "groups": asked.groups, **figures}))


def plan_of(trials: int, search: str, storage: Path) -> Plan:
    """Return the plan of a sweep."""
    experiment = Experiment(
        name="scale", train_loop=train_loop, space=SPACE, metric="val_accuracy", mode="max", budget=Budget(epochs=27)
    )
    options = SweepOptions(
        num_samples=trials, search=search, device="cpu", storage=storage, name="scale", confirm=0,
        tracking_uri=f"sqlite:///{storage}/mlflow.db",
    )  # fmt: skip
    return make_plan(experiment, options)


def simulate(plan: Plan, trials: int, groups: int) -> dict[str, float]:
    """Run the sweep on the simulated clock, and return its figures."""
    study, noise, process = InMemoryStorage(), random.Random(0), psutil.Process()
    sweep = Sweep(plan, groups, study)
    sweep.run.tell(SweepBegan())
    due: list[tuple[float, int, Any]] = [(0.0, group, None) for group in range(groups)]
    epochs: dict[str, int] = {}
    driver_free_at = waited = snapshot_at = full_until = snapshot_s = 0.0
    begun = ended = last_tenth_from = 0
    worked_at: dict[int, float] = {}  # the driver's CPU seconds when so many trials had ended
    memory = process.memory_info().rss
    while due:
        asked_at, group, trial = heapq.heappop(due)
        now = max(asked_at, driver_free_at)
        if now >= snapshot_at:
            began = time.perf_counter()
            sweep.snapshot(plan.folder)
            snapshot_s = time.perf_counter() - began
            now, snapshot_at = now + snapshot_s, now + SNAPSHOT_EVERY_S
        goes_on = False
        if trial is not None:
            epochs[trial.trial_id] += 1
            result = result_of(trial, epochs[trial.trial_id], group, noise)
            goes_on, took = sweep.timed(partial(sweep.report, trial, result))
            now += took
            ended += not goes_on
            worked_at[ended] = sweep.in_all
        if not goes_on and begun < trials:
            begun += 1
            trial, took = sweep.timed(partial(sweep.propose, begun))
            epochs[trial.trial_id] = 0
            now, goes_on = now + took, True
        driver_free_at = now
        if begun < trials:
            waited, full_until = waited + now - asked_at, now
        if goes_on:
            heapq.heappush(due, (now + REPORT_EVERY_S, group, trial))
        if not last_tenth_from and ended >= 0.9 * trials:
            last_tenth_from = len(sweep.decisions)
    grown = process.memory_info().rss - memory
    sweep.snapshot(plan.folder)
    began = time.perf_counter()
    again = SweepRun(plan, make_searcher(plan, study), [])
    again.restore(pickle.loads((plan.folder / "snapshot.pkl").read_bytes()))
    again.searcher.restore(str(plan.folder / "searcher.json"))
    assert len(again.searcher.trials()) == len(again.state.trials) == trials
    resume_s = time.perf_counter() - began
    first, last = min(100, trials // 2), max(trials - 100, trials // 2)
    p50, p99 = np.percentile(sweep.decisions[last_tenth_from:], [50, 99])
    return {
        "busy": round(1 - waited / (groups * full_until), 4),
        "decision_p50_ms": round(1000 * p50, 2),
        "decision_p99_ms": round(1000 * p99, 2),
        "driver_ms_first": round(1000 * worked_at[first] / first, 2),
        "driver_ms_last": round(1000 * (worked_at[trials] - worked_at[last]) / (trials - last), 2),
        "snapshot_ms_last": round(1000 * snapshot_s, 1),
        "memory_growth_mb": round(grown / 1e6),
        "resume_s": round(resume_s, 2),
    }


def result_of(trial: Any, epoch: int, group: int, noise: random.Random) -> dict[str, Any]:
    """Return a report as a worker group makes it."""
    away = abs(np.log10(trial.config["lr"]) + 2.5) / 3 + abs(trial.config["momentum"] - 0.9) / 2
    return {
        "val_accuracy": max(0.0, 0.9 - away) * (1 - 1 / (1 + epoch)) + 0.01 * noise.random(),
        "val_loss": 1 / epoch,
        "train_loss": 1 / epoch,
        names.EPOCH: epoch,
        names.DEVICES: f"node:{group}",
        names.TRAIN_SECONDS: REPORT_EVERY_S,
        names.STEP_SECONDS: REPORT_EVERY_S,
        "training_iteration": epoch,
    }


if __name__ == "__main__":
    main()
