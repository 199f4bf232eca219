"""How long a trial takes to start: warm worker groups against the two ways that Ray Tune has.

- ``plain``: one TorchTrainer per trial, as Ray's guide shows it; what trials of several workers take.
- ``reused``: a function trainable with ``reuse_actors=True``, without logging; what a user of one device per trial
  would take (``plain_tune.py``).
- ``warm``: this project's command, with its study, checkpoints, report and MLflow.
- ``stock``: the same command with public APIs alone (``GAUDI_TUNE_STOCK=1``); it runs where ``--ways`` names it.

The same configurations of the sample recipe run each way, one after the other, each in a process and a Ray of its own,
with the same number of trials at a time. Prints each way's figures as they come, and last, one JSON object:

    {"plain": {...}, "reused": {...}, "warm": {...}, "gap_ratio": {...}, "sweep_ratio": {...}, "command_ratio": {...}}

where ``gap_s`` is the median time from a trial's last report, when its place is free, to the first training step of
the trial that takes it; ``sweep_s`` is the whole sweep, the start of Ray's workers included (of Ray itself in
``reused``, where ``fit`` starts it; the other two begin it before); ``command_s`` is the whole command, with Python's
start, Ray's and the end; ``processes`` and ``peak_pss_gb`` count the process tree. The ratios are each way's figure
over that of ``warm``; if ``--plain-trials`` are fewer, only that of the gap. Takes about 10 minutes on 2 cores;
``--ways warm reused`` takes one. With ``--device cuda``, each trial has a GPU, and there is one at a time.

    python tests/tools/benchmarks/trial_turnaround.py [--trials 24 --plain-trials 4] [--ways warm reused]
        [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.tune_bert import EXPERIMENT
from gaudi_tune.base import names
from gaudi_tune.base.process import temporary_environment
from gaudi_tune.cli.run import run
from gaudi_tune.define.options import PROJECT_ROOT, SweepOptions
from gaudi_tune.private.surfaces import STOCK
from gaudi_tune.sweep.record.sweep_file import read_summary

if TYPE_CHECKING:
    from gaudi_tune.define.sweep_plan import Plan

sys.path[0] = str(PROJECT_ROOT)  # the tests are no package that is installed
from tests.tools.benchmarks.processes import TreeMonitor
from tests.tools.benchmarks.stamped_bert import train_loop

STAMPED = replace(EXPERIMENT, train_loop=train_loop)
WAYS = ("warm", "reused", "plain")
"""From the fastest, so that a run that is ended early has most of its figures."""
STOCK_WAY = "stock"
AT_A_TIME = {"cpu": 2, "cuda": 1}
"""Trials at a time: a worker each on 2 cores, or on one GPU."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--plain-trials", type=int, help="so many of them in the slowest way; default: all")
    parser.add_argument("--ways", nargs="+", choices=(*WAYS, STOCK_WAY), default=WAYS)
    parser.add_argument("--way", choices=(*WAYS, STOCK_WAY), help="run one way in this process (used by the benchmark)")
    parser.add_argument("--device", choices=AT_A_TIME, default="cpu")
    arguments = parser.parse_args()
    device = arguments.device
    if arguments.way:
        if arguments.way == "plain":
            print(json.dumps(run_plain(arguments.trials, device)))
        else:
            print(json.dumps(run_command(arguments.way, arguments.trials, device)))
        return
    from gaudi_tune.plan.planner import make_plan

    with tempfile.TemporaryDirectory() as folder:
        configs = Path(folder) / "configs.json"
        configs.write_text(
            json.dumps(configurations(make_plan(EXPERIMENT, options_of("reused", arguments.trials, folder, device))))
        )
        figures, fewer = {}, arguments.plain_trials or arguments.trials
        for way in sorted(arguments.ways, key=(*WAYS, STOCK_WAY).index):
            figures[way] = measure(way, fewer if way == "plain" else arguments.trials, configs, device)
            print(json.dumps({way: figures[way]}), flush=True)
    ratios = {
        f"{what}_ratio": {
            way: round(figures[way][f"{what}_s"] / figures["warm"][f"{what}_s"], 2)
            for way in figures
            if way != "warm" and "warm" in figures and (what == "gap" or way != "plain" or fewer == arguments.trials)
        }
        for what in ("gap", "sweep", "command")
    }
    print(json.dumps({**figures, **ratios}))


def measure(way: str, trials: int, configs: Path, device: str) -> dict[str, Any]:
    """Run one way in a separate process and watch its process tree."""
    command = [sys.executable, __file__, "--way", way, "--trials", str(trials), "--device", device]
    if way == "reused":
        script = str(PROJECT_ROOT / "tests/tools/benchmarks/plain_tune.py")
        command = [sys.executable, script, str(configs), "--at-a-time", str(AT_A_TIME[device])]
        command += ["--gpus", "1"] if device == "cuda" else []
    began = time.monotonic()
    variables = {**os.environ, **({STOCK: "1"} if way == STOCK_WAY else {})}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stdout is not None
        with TreeMonitor(process.pid) as monitor:
            lines = []
            for line in process.stdout:
                if not line.startswith("{"):
                    print(f"{way}: {line}", end="", flush=True)
                lines.append(line)
        if process.wait() != 0:
            raise SystemExit(f"the {way} way failed")
    command_s = round(time.monotonic() - began, 1)
    figures: dict[str, Any] = json.loads(lines[-1])
    figures["gap_s"] = median_gap(figures.pop("trials"), AT_A_TIME[device])
    watched = {"processes": monitor.processes, "peak_pss_gb": round(monitor.peak_pss / 1e9, 2)}
    return {**figures, "command_s": command_s, **watched}


def options_of(way: str, trials: int, storage: str, device: str) -> SweepOptions:
    """Return the options of the sweep."""
    return SweepOptions(
        num_samples=trials,
        confirm=0,
        recipe="sample",
        device=device,
        epochs=1,
        settings=("train_samples=128", "val_samples=64"),
        search="random",
        scheduler="fifo",
        grow="off",
        storage=Path(storage),
        name=f"turnaround-{way}",
        tracking_uri=f"sqlite:///{storage}/mlflow.db",
    )


def run_command(way: str, trials: int, device: str) -> dict[str, Any]:
    """Run the command that a user of this project runs, and return its times."""
    with tempfile.TemporaryDirectory() as storage:
        options = options_of(way, trials, storage, device)
        assert run(STAMPED, options, ["python", __file__]) == 0
        folder = Path(storage, str(options.name))
        reports = [read_last_report(file) for file in folder.glob("*/result.json")]
        sweep_s = read_summary(folder)["wall_s"]
    assert len(reports) == trials
    return {"sweep_s": round(sweep_s, 1), "trials": reports}


def read_last_report(file: Path) -> dict[str, Any]:
    """Return the last report of a trial that Tune's logger wrote."""
    report: dict[str, Any] = json.loads(file.read_text().splitlines()[-1])
    return report


def run_plain(trials: int, device: str) -> dict[str, Any]:
    """Run the same trials as Ray's guide has it: a function that makes a TorchTrainer for each trial."""
    import ray
    from ray import tune
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    from gaudi_tune.on_ray.local_ray import start_ray
    from gaudi_tune.on_ray.tuner import TRIAL_ACTOR_MEMORY
    from gaudi_tune.plan.planner import make_plan
    from gaudi_tune.private.setup_worker import FORK_SERVER

    with tempfile.TemporaryDirectory() as storage:
        plan = make_plan(STAMPED, options_of("plain", trials, storage, device))
        with temporary_environment({FORK_SERVER: "off"}):  # its copies belong to the warm way
            start_ray(plan)
        # The function below must not hold the plan, or every trial would import all that a plan is made of.
        configs, num_workers = configurations(plan), plan.options.workers_per_trial

        def train_driver(config: dict[str, Any]) -> None:
            TorchTrainer(
                train_loop,
                train_loop_config=configs[config["number"]],
                scaling_config=ScalingConfig(num_workers=num_workers, use_gpu=device == "cuda"),
                run_config=RunConfig(
                    name=tune.get_context().get_trial_id(), storage_path=storage, callbacks=[TuneReportCallback()]
                ),
            ).fit()

        tuner = tune.Tuner(
            # As little for the driver as in the warm way, so that as many trials fit.
            tune.with_resources(train_driver, tune.PlacementGroupFactory([{"memory": TRIAL_ACTOR_MEMORY}])),
            tune_config=tune.TuneConfig(
                metric=EXPERIMENT.metric, mode=EXPERIMENT.mode, max_concurrent_trials=plan.groups
            ),
            run_config=tune.RunConfig(name="tune", storage_path=storage, verbose=0),
            param_space={"number": tune.grid_search(list(range(plan.num_samples)))},
        )
        began = time.time()
        results = tuner.fit()
        sweep_s = time.time() - began
        ray.shutdown()
    assert not results.errors, results.errors
    assert len(results) == trials
    return {"sweep_s": round(sweep_s, 1), "trials": [result.metrics or {} for result in results]}


def configurations(plan: Plan) -> list[dict[str, Any]]:
    """Return the configurations that the warm way's random search proposes, whole."""

    from gaudi_tune.plan.planner import make_proposer

    proposer = make_proposer(plan)
    proposals = [proposer.propose(str(number)) for number in range(plan.num_samples)]
    return [{**plan.settings, **config} for config in proposals if isinstance(config, dict)]


def median_gap(trials: list[dict[str, Any]], at_a_time: int) -> float:
    """Return the median number of seconds from a trial's last report to the first step of the trial in its place.

    With two at a time, the trial that begins as number n + 2 takes the place of the one that ended as number n.
    """
    starts = sorted(trial[names.FIRST_STEP_AT] for trial in trials)[at_a_time:]
    ends = sorted(trial["reported_at"] for trial in trials)
    return round(statistics.median(start - end for start, end in zip(starts, ends, strict=False)), 3)


if __name__ == "__main__":
    main()
