"""What compiled graphs cost a sweep on eight stand-in HPUs, where compiling one takes as long as five epochs.

The same sweep four times: as it is, with four values of dropout and one group of the node compiling each graph; with
any value of dropout, each another graph, and every group for itself; with the four values, every group for itself; and
as it is, but every group trains one value of dropout alone. That is more than could be had if a group that is free took
a proposal whose graph it has. Prints the sweeps' own lines and, last, one JSON object:

    {"trials": ..., "signatures": ..., "compilations": ..., "compilations_not_led": ..., "compilations_without": ...,
     "sweep_ratio": ..., "preferring_saves_at_most": ..., ...}

``compilations`` counts graphs of training; ``sweep_ratio`` is the time of the second sweep by that of the first, in
which trials have the HPUs: without the start of workers, and idle ends. The trials sleep and so do compilations, so
that eight workers fit on two cores; all else is the product's: training loop, Dynamo, counters, caches. Eight groups
need 16 GB of memory.

    python tests/tools/benchmarks/compilation.py [--trials 80] [--modules 8] [--epoch-seconds 1.5]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune

from gaudi_tune import Budget, Experiment
from gaudi_tune.define.options import PROJECT_ROOT, SweepOptions
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.plan_text import plan_lines

sys.path.append(str(PROJECT_ROOT))  # the tests are no package that is installed
from tests.helpers.small_task import Points, SlowPoints, SmallConfig, small_task
from tests.helpers.stand_in_hpu import compilations, environment

EPOCH = "COMPILATION_EPOCH_S"
EPOCH_S = float(os.environ.get(EPOCH, "1.5"))
"""Seconds of an epoch."""
ARMS = {"with": None, "without": "unknown", "not_led": "unknown", "one_graph_a_group": "one_graph"}
"""The sweeps, and what their trials get as ``data``."""
VALUES = [0.0, 0.1, 0.2, 0.3]
"""Of dropout, where a sweep has few."""


@dataclass(frozen=True, kw_only=True)
class CompiledConfig(SmallConfig):
    compile: bool = True
    size: int = 40


@dataclass(frozen=True, kw_only=True)
class UnknownConfig(CompiledConfig):
    """Nobody knows its graphs."""

    def graph_signature(self, device: DeviceType, workers: int) -> None:
        return None


def train_loop(config: dict[str, Any]) -> None:
    from dataclasses import replace

    from gaudi_tune.training.loop import train

    trial = CompiledConfig.from_dict(config)
    if trial.data == "unknown":
        trial = UnknownConfig(**vars(trial))
    if trial.data == "one_graph":
        trial = replace(trial, dropout=VALUES[int(os.environ["HABANA_VISIBLE_MODULES"]) % len(VALUES)])
    task = small_task(trial)
    assert isinstance(task.train_data, Points)
    batch_s = EPOCH_S * trial.batch_size / len(task.train_data)
    train(replace(task, train_data=SlowPoints(task.train_data, batch_s)), trial)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=80)
    parser.add_argument("--modules", type=int, default=8)
    parser.add_argument("--epoch-seconds", type=float, default=EPOCH_S, help="more on a machine that is busy")
    parser.add_argument("--sweep", type=Path, help="run one sweep in this process (used by the benchmark)")
    parser.add_argument("--arm", choices=[*ARMS], help="which")
    arguments = parser.parse_args()
    if arguments.sweep:
        print(json.dumps(sweep(arguments.sweep, arguments.arm, arguments.trials)))
        return
    figures = {}
    for arm in ARMS:
        with tempfile.TemporaryDirectory() as folder:
            figures[arm] = measure(Path(folder), arm, arguments)
            print(arm, json.dumps(figures[arm]), flush=True)
    seconds = {arm: figures[arm]["sweep_s"] for arm in ARMS}
    found = {
        "trials": arguments.trials,
        "signatures": figures["with"]["graphs"],
        "compilations": figures["with"]["compilations"],
        "compilations_not_led": figures["not_led"]["compilations"],
        "compilations_without": figures["without"]["compilations"],
        "sweep_ratio": round(seconds["without"] / seconds["with"], 2),
        "preferring_saves_at_most": round(1 - seconds["one_graph_a_group"] / seconds["with"], 3),
        "sweep_s": seconds,
        "compiling_share": {arm: figures[arm]["compiling_share"] for arm in ARMS},
    }
    print(json.dumps(found))


def measure(folder: Path, arm: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one sweep in a process that finds stand-in HPUs, and count what was compiled."""
    locks = folder / "locks"
    settings = {
        "HABANA_STAND_IN_MODULES": str(arguments.modules),
        "HABANA_STAND_IN_COMPILE_S": str(5 * arguments.epoch_seconds),
        EPOCH: str(arguments.epoch_seconds),
        "GAUDI_TUNE_CACHE": str(folder / "cache"),
    }
    command = [sys.executable, __file__, "--sweep", str(folder), "--arm", arm, "--trials", str(arguments.trials)]
    with subprocess.Popen(command, env=environment(locks, **settings), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    assert process.returncode == 0, "the sweep failed"
    training = [entry["recipe"] for entry in compilations(locks) if entry["part"] == "forward"]
    return {**json.loads(lines[-1]), "graphs": len(set(training)), "compilations": len(training)}


def sweep(folder: Path, arm: str, trials: int) -> dict[str, Any]:
    """Run the sweep and return how long it took."""
    dropout = tune.uniform(0.0, 0.3) if arm == "without" else tune.choice(VALUES)
    experiment = Experiment(
        name="compiling",
        train_loop=train_loop,
        config_class=UnknownConfig if ARMS[arm] == "unknown" else CompiledConfig,
        space={"lr": tune.loguniform(1e-3, 1.0), "dropout": dropout},
        baseline={"lr": 0.1, "dropout": 0.1},
        budget=Budget(epochs=9),
    )
    options = SweepOptions(
        num_samples=trials,
        search="random",
        storage=folder / "results",
        data=ARMS[arm],
        name=f"compiling-{arm}",
        tracking_uri=f"sqlite:///{folder}/mlflow.db",
    )
    plan = make_plan(experiment, options)
    print("\n".join(plan_lines(plan)), flush=True)
    results = SweepTuner(plan).fit()
    ray.shutdown()
    assert not results.errors, results.errors
    seconds = json.loads(plan.summary_file.read_text())["device_seconds"]
    held = sum(seconds.values()) - seconds["starting"] - seconds["idle"]
    return {
        "sweep_s": round(held / plan.devices.count, 1),
        "compiling_share": round(seconds["compiling"] / held, 3),
        "device_seconds": seconds,
    }


if __name__ == "__main__":
    main()
