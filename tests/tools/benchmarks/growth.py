"""What growing saves: the same sweeps on eight simulated HPUs, with trials that take over idle devices and without.

Nothing trains: Tune's own controller runs N sweeps of each kind on simulated groups
(:mod:`tests.tools.benchmarks.simulated_groups`) with epochs of 10 s and starts of ``--start-seconds``, each with its
seed, and the figures are those of all together, from the first training step to the end. ASHA stops trials, random
search proposes them. Prints one JSON object:

    {"time_ratio": ..., "occupancy": ..., "occupancy_without": ..., ...}

``occupancy`` is the share of the devices' time in which a trial has them, its workers' start included;
``training_share*`` that in which it trains or evaluates. ``longest_wait_s`` is the longest that a group has waited for
its devices, without growing and with it, and ``in_vain`` how often one did not get those that it was to have. With
``--add`` a trial is added by hand as soon as one has all devices.

    python tests/tools/benchmarks/growth.py [--simulated 8] [--trials 16] [--epochs 9]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ray import tune

from gaudi_tune import Budget, Experiment
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

sys.path[0] = str(PROJECT_ROOT)  # the tests are no package that is installed
from tests.helpers.small_task import SmallConfig, small_loop
from tests.tools.benchmarks import simulated_groups
from tests.tools.benchmarks.simulated_groups import Clock, Groups, without_ray


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
    parser.add_argument("--simulated", type=int, default=8, metavar="N", help="how many sweeps of each kind")
    parser.add_argument("--start-seconds", type=float, default=1.0, help="of a group")
    parser.add_argument("--scheduler", default="asha")
    parser.add_argument("--add", action="store_true", help="add a trial when one has all devices")
    arguments = parser.parse_args()
    print(json.dumps(simulated(arguments)), flush=True)
    os._exit(0)  # threads of the sweeps are left as they are


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
    options: dict[str, Any] = {
        "num_samples": arguments.trials,
        "search": "random",
        "scheduler": arguments.scheduler,
        "grow": grow,
        "seed": seed,
        "storage": folder / "results",
        "name": f"growing-{grow}",
        "tracking_uri": f"sqlite:///{folder}/mlflow.db",
    }
    plan = make_plan(experiment, SweepOptions(**options, **more_options))
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
