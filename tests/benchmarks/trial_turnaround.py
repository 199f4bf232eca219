"""How long a trial takes to start: warm worker groups against one TorchTrainer per trial, as Ray's guide shows.

The same configurations of the sample recipe run through both ways, one after the other, each in a process and a Ray of
its own, with the same number of trials at a time. Prints, last, one JSON object:

    {"plain": {...}, "warm": {...}, "start_ratio": ..., "sweep_ratio": ...}

where ``start_s`` is the median time from the scheduler's launch of a trial to its first training step, without the
first trial of each group, whose median is ``first_start_s``; ``sweep_s`` is the whole sweep, the start of the groups
included; ``processes`` and ``peak_pss_gb`` count the process tree. Takes about 10 minutes on 2 cores.

    python tests/benchmarks/trial_turnaround.py [--trials 24]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from optuna.storages import InMemoryStorage
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune.experiment import Trial
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.schedulers import FIFOScheduler

from experiments.tune_bert import EXPERIMENT
from gaudi_tune.base import names
from gaudi_tune.base.variables import temporary_environment
from gaudi_tune.define.options import PROJECT_ROOT, SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.local_ray import start_ray
from gaudi_tune.on_ray.tuner import TRIAL_ACTOR_MEMORY, SweepTuner
from gaudi_tune.plan.planner import make_plan, make_searcher
from gaudi_tune.private.setup_worker import FORK_SERVER
from trainables.bert import train_loop

sys.path[0] = str(PROJECT_ROOT)  # the tests are no package that is installed
from tests.benchmarks.processes import TreeMonitor

LAUNCHED_AT: dict[str, float] = {}
"""Clock time at which the scheduler launched a trial, by trial id."""


class StampingScheduler(FIFOScheduler):
    """First in, first out, and notes when a trial is given to it to be launched, which is when a group is free."""

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        LAUNCHED_AT[trial.trial_id] = time.time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--way", choices=["plain", "warm"], help="run one way in this process (used by the benchmark)")
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(sweep(arguments.way, arguments.trials)))
        return
    figures = {way: measure(way, arguments.trials) for way in ("plain", "warm")}
    ratios = {
        f"{what}_ratio": round(figures["plain"][f"{what}_s"] / figures["warm"][f"{what}_s"], 1)
        for what in ("start", "sweep")
    }
    print(json.dumps({**figures, **ratios}))


def measure(way: str, trials: int) -> dict[str, Any]:
    """Run one way in a separate process and watch its process tree."""
    command = [sys.executable, __file__, "--way", way, "--trials", str(trials)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with TreeMonitor(process.pid) as monitor:
            lines = []
            for line in process.stdout:
                print(f"{way}: {line}", end="", flush=True)
                lines.append(line)
        if process.wait() != 0:
            raise SystemExit(f"the {way} way failed")
    figures: dict[str, Any] = json.loads(lines[-1])
    return {**figures, "processes": monitor.processes, "peak_pss_gb": round(monitor.peak_pss / 1e9, 2)}


def sweep(way: str, trials: int) -> dict[str, Any]:
    """Run the configurations one way and return its times."""
    with tempfile.TemporaryDirectory() as storage:
        options = SweepOptions(
            num_samples=trials,
            confirm=0,
            recipe="sample",
            device="cpu",
            epochs=1,
            settings=("train_samples=128", "val_samples=64"),
            search="random",
            scheduler="fifo",
            grow="off",
            storage=Path(storage),
            name=f"turnaround-{way}",
            tracking_uri=f"sqlite:///{storage}/mlflow.db",
        )
        plan = make_plan(EXPERIMENT, options)
        tuner = warm_tuner(plan) if way == "warm" else plain_tuner(plan)
        began = time.time()
        results = tuner.fit()
        sweep_s = time.time() - began
        ray.shutdown()
    assert not results.errors, results.errors
    assert len(results) == trials
    return {**start_times([result.metrics or {} for result in results], plan.groups), "sweep_s": round(sweep_s, 1)}


def warm_tuner(plan: Plan) -> SweepTuner:
    """Return the sweep in warm groups."""
    tuner = SweepTuner(plan)
    given_to = tuner.run.on_disk.trial_added

    def stamped(trial: Trial) -> None:
        LAUNCHED_AT[trial.trial_id] = time.time()
        given_to(trial)

    tuner.run.on_disk.trial_added = stamped  # type: ignore[method-assign]
    return tuner


def plain_tuner(plan: Plan) -> tune.Tuner:
    """Return the same sweep as Ray's guide has it: a function that makes a TorchTrainer for each trial. Its processes
    are no copies of a fork server's, which belongs to the warm way."""
    with temporary_environment({FORK_SERVER: "off"}):
        start_ray(plan)
    # The function below must not hold the plan, or every trial would import all that a plan is made of.
    storage, configs, num_workers = str(plan.folder), configurations(plan), plan.options.workers_per_trial

    def train_driver(config: dict[str, Any]) -> None:
        TorchTrainer(
            train_loop,
            train_loop_config=configs[config["number"]],
            scaling_config=ScalingConfig(num_workers=num_workers),
            run_config=RunConfig(
                name=tune.get_context().get_trial_id(), storage_path=storage, callbacks=[TuneReportCallback()]
            ),
        ).fit()

    # As little for the driver as in the warm way, so that as many trials fit.
    driver_resources = tune.PlacementGroupFactory([{"memory": TRIAL_ACTOR_MEMORY}])
    return tune.Tuner(
        tune.with_resources(train_driver, driver_resources),
        tune_config=tune.TuneConfig(
            metric=EXPERIMENT.metric,
            mode=EXPERIMENT.mode,
            scheduler=StampingScheduler(),
            max_concurrent_trials=plan.groups,
        ),
        run_config=tune.RunConfig(name="tune", storage_path=storage, verbose=0),
        param_space={"number": tune.grid_search(list(range(plan.num_samples)))},
    )


def configurations(plan: Plan) -> list[dict[str, Any]]:
    """Return the configurations that the warm way's random search proposes, whole."""
    searcher = make_searcher(plan, InMemoryStorage())
    proposals = [searcher.suggest(str(number)) for number in range(plan.num_samples)]
    return [{**plan.settings, **config} for config in proposals if isinstance(config, dict)]


def start_times(results: list[dict[str, Any]], groups: int) -> dict[str, float]:
    """Return the median start of all trials but the first ``groups``, and of those."""
    by_launch = sorted(results, key=lambda result: LAUNCHED_AT[result["trial_id"]])
    starts = [result[names.FIRST_STEP_AT] - LAUNCHED_AT[result["trial_id"]] for result in by_launch]
    return {
        "start_s": round(statistics.median(starts[groups:]), 3),
        "first_start_s": round(statistics.median(starts[:groups]), 3),
    }


if __name__ == "__main__":
    main()
