"""What growing saves: the same sweep on eight stand-in HPUs, with trials that take over idle devices and without.

Epochs sleep, and are 1.7 times as short on twice as many devices: 85 % efficiency. All else is the product's: groups,
checkpoints, the training loop, and the batches, so that both sweeps report the same numbers. ASHA stops trials, random
search proposes them. Prints the sweeps' own lines and, last, one JSON object:

    {"time_ratio": ..., "occupancy": ..., "occupancy_without": ..., "max_difference": ..., ...}

Time and occupancy are those of the whole sweep from the first training step to the end. ``occupancy`` is the share of
the devices' time in which a trial has them, its workers' start included; ``training_share*`` that in which it trains or
evaluates. ``max_difference`` is the largest of all numbers that a trial of both sweeps reported after the same epoch.

With ``--simulated N`` nothing trains: Tune's own controller runs N sweeps of each kind on simulated groups
(:mod:`tests.benchmarks.simulated_groups`) with epochs of 10 s and starts of ``--start-seconds``, each with its seed,
and the figures are those of all together; there are no numbers to compare. ``longest_wait_s`` is the longest that a
group has waited for its devices, without growing and with it, and ``in_vain`` how often one did not get those that it
was to have. With ``--add`` a trial is added by hand as soon as one has all devices.

    python tests/benchmarks/growth.py [--trials 32] [--epochs 27] [--modules 8] [--epoch-seconds 40]
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import ray
from ray import tune

from gaudi_tune import Budget, Experiment
from gaudi_tune.base import names
from gaudi_tune.define.options import PROJECT_ROOT, SweepOptions
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.hpu import HPU
from gaudi_tune.on_ray.steering import Steering
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.show.trackers.tracker import Tracker
from gaudi_tune.sweep.record.device_time import EVALUATING, TRAINING
from gaudi_tune.sweep.record.events import Event, Reported
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import trial_name

sys.path[0] = str(PROJECT_ROOT)  # the tests are no package that is installed
from tests.benchmarks import simulated_groups
from tests.benchmarks.simulated_groups import Clock, Groups, without_ray
from tests.helpers.small_task import Points, SlowPoints, SmallConfig, small_task
from tests.helpers.stand_in_hpu import environment

EPOCH = "GROWTH_EPOCH_S"
FASTER = 1.7
"""On twice as many devices."""


@dataclass(frozen=True, kw_only=True)
class GrowingConfig(SmallConfig):
    compile: bool = False
    size: int = 40
    noise: float = 0.0
    dropout: float = 0.0

    def why_not_wider(self, device: DeviceType, workers: int, wider: int) -> None:
        return None


def train_loop(config: dict[str, Any]) -> None:
    from gaudi_tune.training.loop import train
    from gaudi_tune.training.session import get_context

    trial = GrowingConfig.from_dict(config)
    task = small_task(trial)
    assert isinstance(task.train_data, Points)
    epoch_s = float(os.environ[EPOCH]) / FASTER ** math.log2(get_context().get_world_size())
    steps = len(task.train_data) // trial.batch_size
    train(replace(task, train_data=SlowPoints(task.train_data, epoch_s / steps)), trial)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=27)
    parser.add_argument("--modules", type=int, default=8)
    parser.add_argument("--epoch-seconds", type=float, default=40.0, help="more than a group takes to start here")
    parser.add_argument("--sweep", type=Path, help="run one sweep in this process (used by the benchmark)")
    parser.add_argument("--grow", choices=["auto", "off"], help="how")
    parser.add_argument("--simulated", type=int, metavar="N", help="run N sweeps of each kind on simulated groups")
    parser.add_argument("--start-seconds", type=float, default=1.0, help="of simulated groups")
    parser.add_argument("--scheduler", default="asha")
    parser.add_argument("--add", action="store_true", help="add a trial to simulated sweeps when one has all devices")
    arguments = parser.parse_args()
    if arguments.simulated:
        print(json.dumps(simulated(arguments)))
        os._exit(0)  # threads of the sweeps are left as they are
    if arguments.sweep:
        print(json.dumps(sweep(arguments.sweep, arguments)))
        return
    found = {}
    for grow in ("auto", "off"):
        with tempfile.TemporaryDirectory() as folder:
            found[grow] = measure(Path(folder), grow, arguments)
            print(grow, {name: value for name, value in found[grow].items() if name != "reports"}, flush=True)
    grown, without = found["auto"], found["off"]
    common = grown["reports"].keys() & without["reports"].keys()
    differences = [
        abs(mine - theirs)
        for key in common
        for mine, theirs in zip(grown["reports"][key], without["reports"][key], strict=True)
    ]
    figures = {
        "time_ratio": round(grown["seconds"] / without["seconds"], 3),
        "occupancy": grown["occupancy"],
        "occupancy_without": without["occupancy"],
        "max_difference": max(differences),
        "seconds": [without["seconds"], grown["seconds"]],
        "training_share": grown["training_share"],
        "training_share_without": without["training_share"],
        "compared_reports": len(common),
        "epochs": [without["epochs"], grown["epochs"]],
    }
    print(json.dumps(figures))


def measure(folder: Path, grow: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one sweep in a process that finds stand-in HPUs."""
    settings = {
        "HABANA_STAND_IN_MODULES": str(arguments.modules),
        EPOCH: str(arguments.epoch_seconds),
        "GAUDI_TUNE_CACHE": str(folder / "cache"),
    }
    command = [sys.executable, __file__, "--sweep", str(folder), "--grow", grow]
    command += ["--trials", str(arguments.trials), "--epochs", str(arguments.epochs)]
    command += ["--scheduler", arguments.scheduler]
    place = environment(folder / "locks", **settings)
    with subprocess.Popen(command, env=place, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            print(line[:200].rstrip(), flush=True)
    assert process.returncode == 0, "the sweep failed"
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures


def simulated(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run sweeps on simulated groups, and return the figures of all together."""
    simulated_groups.START_S = arguments.start_seconds
    found, waits, added, in_vain = {"auto": [0.0] * 3, "off": [0.0] * 3}, [], 0, 0
    for seed in range(arguments.simulated):
        for grow, sums in found.items():
            groups = Groups(Clock(), arguments.modules)
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                tuner, adds = simulated_sweep(Path(folder), groups, arguments, grow, seed)
            waits.append(groups.longest_wait_s)
            added += adds.added
            in_vain += groups.in_vain
            for at, figure in enumerate(device_seconds(tuner)):
                sums[at] += figure
    (grown, held, used), (without, held_without, used_without) = found["auto"], found["off"]
    return {
        "time_ratio": round(grown / without, 3),
        "occupancy": round(held / grown / arguments.modules, 3),
        "occupancy_without": round(held_without / without / arguments.modules, 3),
        "training_share": round(used / grown / arguments.modules, 3),
        "training_share_without": round(used_without / without / arguments.modules, 3),
        "longest_wait_s": [round(max(waits[1::2]), 1), round(max(waits[::2]), 1)],
        "in_vain": in_vain,
        "added_by_hand": added,
        "sweeps": arguments.simulated,
    }


def simulated_sweep(
    folder: Path, groups: Groups, arguments: argparse.Namespace, grow: str, seed: int
) -> tuple[SweepTuner, AddsTrial]:
    """Run one sweep on simulated groups."""
    with without_ray(folder, groups, HPU), redirect_stdout(io.StringIO()):
        tuner = tuner_of(folder, grow, arguments, seed, trackers=())
        adds = AddsTrial(tuner.run.steering, groups.count if arguments.add else -1)
        tuner.run.views[:] = [adds]
        tuner.fit()
    assert tuner.run.state.complete, "trials remain"
    return tuner, adds


class AddsTrial:
    """Watches a sweep, and adds a trial by hand when one trial has so many devices."""

    def __init__(self, steering: Steering, when: int) -> None:
        self._steering, self._when = steering, when
        self._answer: Future[str] | None = None

    @property
    def added(self) -> bool:
        """Whether a trial was added."""
        return self._answer is not None and self._answer.exception() is None

    def show(self, event: Event, state: SweepState) -> None:
        """Look at the devices of the trial that has just reported."""
        if self._answer is not None or not isinstance(event, Reported):
            return
        if len(state.device_time.devices_of(event.trial)) == self._when:
            self._answer = self._steering.ask({"do": "add", "trials": 1})

    def tick(self, state: SweepState) -> None:
        """Nothing is due."""


def sweep(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the sweep and return how long it took, what the devices did, and what the trials reported."""
    tuner = tuner_of(folder, arguments.grow, arguments, seed=0)
    results = tuner.fit()
    ray.shutdown()
    assert not results.errors, results.errors
    reports = {}
    for number in tuner.run.state.trials:
        for line in (tuner.plan.folder / trial_name(number) / "result.json").read_text().splitlines():
            report = json.loads(line)
            reports[f"{number} {report[names.EPOCH]}"] = [report[names.TRAIN_LOSS], report[names.VAL_LOSS]]
    seconds, held, used = device_seconds(tuner)
    return {
        "seconds": round(seconds, 1),
        "occupancy": round(held / seconds / tuner.plan.devices.count, 3),
        "training_share": round(used / seconds / tuner.plan.devices.count, 3),
        "epochs": sum(trial.step for trial in tuner.run.state.trials.values()),
        "reports": reports,
    }


def tuner_of(
    folder: Path,
    grow: Any,
    arguments: argparse.Namespace,
    seed: int,
    trackers: Sequence[Tracker] | None = None,
    **more_options: Any,
) -> SweepTuner:
    """Return a sweep that is planned."""
    experiment = Experiment(
        name="growing",
        train_loop=train_loop,
        config_class=GrowingConfig,
        space={"lr": tune.loguniform(1e-3, 1.0), "momentum": tune.uniform(0.0, 0.95)},
        baseline={"lr": 0.1, "momentum": 0.9},
        budget=Budget(epochs=arguments.epochs),
    )
    options = SweepOptions(
        num_samples=arguments.trials,
        search="random",
        scheduler=arguments.scheduler,
        grow=grow,
        seed=seed,
        storage=folder / "results",
        name=f"growing-{grow}",
        tracking_uri=f"sqlite:///{folder}/mlflow.db",
        **more_options,
    )
    plan = make_plan(experiment, options)
    print("\n".join(plan_lines(plan)), flush=True)
    return SweepTuner(plan, trackers=trackers)


def device_seconds(tuner: SweepTuner) -> tuple[float, float, float]:
    """Return the seconds from the first training step to the end; and of all devices, those in which trials had them,
    and those in which they trained."""
    time_of = tuner.run.state.device_time
    by_device = sorted(time_of.intervals, key=lambda one: (one.device, one.began))
    for one, following in pairwise(by_device):
        assert one.device != following.device or one.ended < following.began + 1e-6, "two trials had it"
    began = min(one.trained_from for one in time_of.intervals)
    ended = max(one.ended for one in time_of.intervals)
    held = sum(one.ended - max(began, one.began) for one in time_of.intervals)
    seconds = time_of.total()
    return ended - began, held, seconds[TRAINING] + seconds[EVALUATING]


if __name__ == "__main__":
    main()
