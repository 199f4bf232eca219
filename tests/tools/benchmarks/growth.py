"""What growing saves: the same sweep on eight stand-in HPUs, with trials that take over idle devices and without.

Trains the sample recipe of BERT. The stand-in's products of matrices take so long that an epoch takes one device
``--epoch-seconds``, in which the host waits and uses no core. Twice as many devices train twice as fast, but for what
the host does and for the padding of batches in evaluation. ASHA stops trials, random search proposes them. Prints the
sweeps' own lines and, last, one JSON object:

    {"time_ratio": ..., "occupancy": ..., "occupancy_without": ..., "best": [...], ...}

Time and occupancy are those of the whole sweep from the first training step to the end. ``occupancy`` is the share of
the devices' time in which a trial has them, its workers' start included; ``training_share*`` that in which it trains or
evaluates. ``best`` are the best accuracies, without growing and with it. ``epoch_s`` are the seconds of an epoch by
the number of devices, ``first_epoch_s`` of those on new workers, whose start is included.

With ``--simulated N`` nothing trains: Tune's own controller runs N sweeps of each kind on simulated groups
(:mod:`tests.tools.benchmarks.simulated_groups`) with epochs of 10 s and starts of ``--start-seconds``, each with its
seed, and the figures are those of all together. ``longest_wait_s`` is the longest that a
group has waited for its devices, without growing and with it, and ``in_vain`` how often one did not get those that it
was to have. With ``--add`` a trial is added by hand as soon as one has all devices.

    python tests/tools/benchmarks/growth.py [--trials 16] [--epochs 9] [--epoch-seconds 30] [--seed 0]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.utils.util import flatten_dict

from experiments import tune_bert
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
from tests.helpers.small_task import SmallConfig, small_loop
from tests.helpers.stand_in_hpu import environment
from tests.tools.benchmarks import simulated_groups
from tests.tools.benchmarks.simulated_groups import Clock, Groups, without_ray

BATCH, TRAINED, EVALUATED = 64, 256, 128
"""Samples of a step and of an epoch: few steps, since the CPU's work is that of the steps, not of the samples."""


@dataclass(frozen=True, kw_only=True)
class GrowingConfig(SmallConfig):
    """Of simulated trials, which may grow in any case."""

    def why_not_wider(self, device: DeviceType, workers: int, wider: int) -> str | None:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--modules", type=int, default=8)
    parser.add_argument("--epoch-seconds", type=float, default=30.0, help="of an epoch on one device")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the recipe")
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
            print(grow, found[grow], flush=True)
    grown, without = found["auto"], found["off"]
    figures = {
        "time_ratio": round(grown["seconds"] / without["seconds"], 3),
        "occupancy": grown["occupancy"],
        "occupancy_without": without["occupancy"],
        "training_share": grown["training_share"],
        "training_share_without": without["training_share"],
        **{name: [without[name], grown[name]] for name in ("seconds", "epochs", "best")},
        "epoch_s": grown["epoch_s"],
        "first_epoch_s": grown["first_epoch_s"],
    }
    print(json.dumps(figures))


def measure(folder: Path, grow: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one sweep in a process that finds stand-in HPUs."""
    settings = {
        "HABANA_STAND_IN_MODULES": str(arguments.modules),
        "HABANA_STAND_IN_GFLOPS": str(operations_of_an_epoch() / arguments.epoch_seconds / 1e9),
        "HABANA_STAND_IN_WAIT_S": "60",  # as the real one: a process that ends may still have the device
    }
    command = [sys.executable, __file__, "--sweep", str(folder), "--grow", grow]
    command += ["--trials", str(arguments.trials), "--epochs", str(arguments.epochs)]
    command += ["--scheduler", arguments.scheduler, "--seed", str(arguments.seed)]
    command += ["--set", *arguments.set] if arguments.set else []
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


def operations_of_an_epoch() -> float:
    """Return the additions and multiplications in the products of matrices of an epoch, trained and evaluated."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig, AutoModelForSequenceClassification

    settings = tune_bert.sample_settings()
    model = AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(str(settings["model"])))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.ones(1, int(str(settings["max_length"])), dtype=torch.int64))
    return float((3 * TRAINED + EVALUATED) * counter.get_total_flops())  # backward has twice those of forward


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
        tuner.run.announcer.views[:] = [adds]
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
    options = SweepOptions(
        recipe="sample",
        settings=(
            f"batch_size={BATCH}", f"train_samples={TRAINED}", f"val_samples={EVALUATED}", *arguments.set
        ),
        epochs=arguments.epochs,
        confirm=0,
        **common_options(folder, arguments.grow, arguments, arguments.seed),
    )  # fmt: skip
    plan = make_plan(tune_bert.EXPERIMENT, options)
    print("\n".join(plan_lines(plan)), flush=True)
    tuner = SweepTuner(plan)
    results = tuner.fit()
    ray.shutdown()
    assert not results.errors, results.errors
    epoch_s, start_s = defaultdict(list), defaultdict(list)
    for number in tuner.run.state.trials:
        for line in (plan.folder / trial_name(number) / "result.json").read_text().splitlines():
            report = flatten_dict(json.loads(line))
            width = len(report[names.DEVICES].split())
            if names.START_SECONDS in report:
                start_s[width].append(report[names.STEP_SECONDS])
            else:
                epoch_s[width].append(report[names.STEP_SECONDS])
    seconds, held, used = device_seconds(tuner)
    return {
        "seconds": round(seconds, 1),
        "occupancy": round(held / seconds / plan.devices.count, 3),
        "training_share": round(used / seconds / plan.devices.count, 3),
        "epochs": sum(trial.step for trial in tuner.run.state.trials.values()),
        "best": max(trial.best for trial in tuner.run.state.trials.values() if trial.best is not None),
        "epoch_s": medians(epoch_s),
        "first_epoch_s": medians(start_s),
    }


def medians(seconds: dict[int, list[float]]) -> dict[int, float]:
    """Return the median of each width."""
    return {width: round(statistics.median(values), 1) for width, values in sorted(seconds.items())}


def common_options(folder: Path, grow: Any, arguments: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Return the options of both kinds of sweep."""
    return {
        "num_samples": arguments.trials,
        "search": "random",
        "scheduler": arguments.scheduler,
        "grow": grow,
        "seed": seed,
        "storage": folder / "results",
        "name": f"growing-{grow}",
        "tracking_uri": f"sqlite:///{folder}/mlflow.db",
    }


def tuner_of(
    folder: Path,
    grow: Any,
    arguments: argparse.Namespace,
    seed: int,
    trackers: Sequence[Tracker] | None = None,
    **more_options: Any,
) -> SweepTuner:
    """Return a simulated sweep that is planned."""
    experiment = Experiment(
        name="growing",
        train_loop=small_loop,
        config_class=GrowingConfig,
        space={"lr": tune.loguniform(1e-3, 1.0), "momentum": tune.uniform(0.0, 0.95)},
        baseline={"lr": 0.1, "momentum": 0.9},
        budget=Budget(epochs=arguments.epochs),
    )
    plan = make_plan(experiment, SweepOptions(**common_options(folder, grow, arguments, seed), **more_options))
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
