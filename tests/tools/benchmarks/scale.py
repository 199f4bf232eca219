"""What the driver costs when a sweep is large: ten thousand trials on 512 simulated groups.

Ray Tune's own controller, its files, and this project's searcher, scheduler, state, tracker and snapshots are the real
ones. The groups are simulated (:mod:`tests.tools.benchmarks.simulated_groups`): each reports about every 10 s of a
clock that jumps where the driver would wait, and waits itself while the driver is busy, which counts. Left out is what
other threads do in the real time that is not there: the study's database, the delivery to MLflow, the pictures and the
terminal. Then a line for plain Ray Tune with ``OptunaSearch`` and ``ASHAScheduler`` on the same groups, for as long as
``--plain-minutes`` allows. Prints, last, one JSON object:

    {"trials": ..., "groups": ..., "busy": ..., "decision_p50_ms": ..., "decision_p99_ms": ..., "driver_ms_first": ...,
     "driver_ms_last": ..., "memory_growth_mb": ..., "resume_s": ..., "resume_cpu_s": ...}

``busy`` is the share of the groups' time, until the last trial begins, in which they start, train, save or restore. A
decision is one step of Tune's controller with an event of a group; the percentiles are those while the last tenth of
the trials begins. ``driver_ms_*``: the driver's CPU time for one trial, mean of the first hundred that begin after all
groups have one, and of the last tenth. ``resume_s``: from ``fit()`` to the first trial of a sweep that goes on, in a
new process; ``resume_cpu_s``: the CPU of its event loop until then. With ``--of-cpu`` the driver takes its CPU time in
the simulation, and nothing counts that waits for the disk: for a machine that others use, too.

    python tests/tools/benchmarks/scale.py [--trials 10000] [--groups 512] [--search gp] [--scheduler asha] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import json
import multiprocessing
import os
import pstats
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import psutil
from ray import tune
from ray.tune.execution.tune_controller import TuneController
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

from gaudi_tune.define.options import PROJECT_ROOT

sys.path[0] = str(PROJECT_ROOT)  # the tests are no package that is installed
from gaudi_tune import Budget, Experiment
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.devices.cpu import CPU
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.trackers.mlflow_tracker import MlflowTracker
from tests.tools.benchmarks.simulated_groups import Clock, Groups, without_ray

SPACE = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "weight_decay": tune.loguniform(1e-6, 1e-2),
    "batch_size": tune.choice([16, 32, 64]),
    "momentum": tune.uniform(0.0, 0.99),
    "optimizer": tune.choice(["sgd", "adamw"]),
    "warmup": tune.uniform(0.0, 0.2),
}
EPOCHS = 27
PARTS = ("params", "intermediate_values", "values")
"""Of a trial in Optuna's database."""


def train_loop(config: dict[str, Any]) -> None:
    """Is never called."""


class EnoughError(Exception):
    """The simulation has what it wants."""


class Driver:
    """Tune's controller, step by step, and how long each step took."""

    def __init__(self, groups: Groups, trials: int, until: Callable[[TuneController], bool]) -> None:
        self.groups, self.trials, self._until = groups, trials, until
        self._clock = groups.clock
        self.began = self._clock.now()
        self.decisions: list[tuple[int, float]] = []
        """Trials that had begun, and seconds, of each step with an event."""
        self.cpu_at: dict[int, float] = {}
        """The driver's CPU seconds when so many trials had begun."""
        self.last_began = 0.0
        self._memory = psutil.Process().memory_info().rss
        step = TuneController.step

        def timed(controller: TuneController) -> None:
            self._step(controller, step)

        self.undo: Callable[[], None] = lambda: setattr(TuneController, "step", step)
        TuneController.step = timed

    def _step(self, controller: TuneController, step: Callable[[TuneController], None]) -> None:
        before, waited, handled = self._clock.now(), self.groups.waited_s, self.groups.handled
        step(controller)
        begun = len(controller.get_trials())
        if self.groups.handled > handled:
            self.decisions.append((begun, self._clock.now() - before - (self.groups.waited_s - waited)))
        if begun not in self.cpu_at:
            self.cpu_at[begun], self.last_began = time.thread_time() + self.groups.cpu_s, self._clock.now()
        if self._until(controller):
            raise EnoughError

    def figures(self) -> dict[str, float]:
        """Return what was measured."""
        reached, groups = max(self.cpu_at), self.groups.count
        last = [seconds for begun, seconds in self.decisions if 0.9 * reached <= begun < reached]
        p50, p99 = np.percentile(last, [50, 99])
        first = min(groups, reached - 100)
        span = self.last_began - self.began
        worked = sum(max(0.0, min(took, self.last_began - at)) for at, took in self.groups.worked)
        return {
            "trials": reached,
            "groups": groups,
            "busy": round(worked / (groups * span), 4),
            "decision_p50_ms": round(1000 * p50, 2),
            "decision_p99_ms": round(1000 * p99, 2),
            "driver_ms_first": round(self._cpu_ms(first, first + 100), 2),
            "driver_ms_last": round(self._cpu_ms(int(0.9 * reached), reached), 2),
            "memory_growth_mb": round((psutil.Process().memory_info().rss - self._memory) / 1e6),
        }

    def _cpu_ms(self, one: int, other: int) -> float:
        """Return the CPU for one trial between two counts of trials."""
        known = np.array(sorted(self.cpu_at))
        a, b = (int(known[np.searchsorted(known, n)]) for n in (one, other))
        return 1000 * (self.cpu_at[b] - self.cpu_at[a]) / (b - a)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=512)
    parser.add_argument("--search", default=SweepOptions().search)
    parser.add_argument("--scheduler", default=SweepOptions().scheduler)
    parser.add_argument("--plain-minutes", type=float, default=3.0, help="for plain Ray Tune; 0 leaves it out")
    parser.add_argument("--of-cpu", action="store_true", help="the clock counts the driver's CPU, not its time")
    parser.add_argument("--profile", action="store_true", help="print what took the driver's time")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as storage:
        if asked.plain_minutes:
            print("plain Ray Tune:", json.dumps(elsewhere(plain_ray, asked, Path(storage))), flush=True)
        figures = sweep(asked, Path(storage))
        print(json.dumps(figures), flush=True)
        # Under this module's own name: workers must find its train loop.
        figures |= elsewhere(importlib.import_module("tests.tools.benchmarks.scale").resumed, asked, Path(storage))
        print(json.dumps(figures), flush=True)
        os._exit(0)  # the sweep is left as it is


def elsewhere(
    run: Callable[[argparse.Namespace, Path], dict[str, float]], asked: argparse.Namespace, storage: Path
) -> dict[str, float]:
    """Return what that returns in a new process: this project changes Tune, and what a sweep leaves in memory makes the
    collections of Python's garbage longer."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        return other.submit(run, asked, storage).result()


def plan_of(storage: Path, **changes: Any) -> Plan:
    """Return the plan of a sweep on simulated groups."""
    experiment = Experiment(
        name="scale",
        train_loop=train_loop,
        space=SPACE,
        metric="val_accuracy",
        mode="max",
        budget=Budget(epochs=EPOCHS),
    )
    options = SweepOptions(storage=storage, tracking_uri=f"sqlite:///{storage}/mlflow.db", **changes)
    return make_plan(experiment, options)


def tuner_of(plan: Plan) -> SweepTuner:
    """Return the sweep's own Tuner, which shows nothing."""
    made = SweepTuner(plan, trackers=[MlflowTracker(plan)])
    made.run.announcer.views.clear()
    return made


def sweep(asked: argparse.Namespace, storage: Path) -> dict[str, float]:
    """Run a sweep until its last trial has ended, and return its figures."""
    groups = groups_of(asked)
    with without_ray(storage, groups, CPU):
        plan = plan_of(
            storage, name="scale", device="cpu", num_samples=asked.trials, search=asked.search,
            scheduler=asked.scheduler, confirm=0,
        )  # fmt: skip
        made = tuner_of(plan)
        profile = cProfile.Profile(time.thread_time)
        if asked.profile:
            profile.enable()
        figures = simulated(groups, asked.trials, made.fit, lambda controller: controller.is_finished())
        profile.disable()
        if asked.profile:
            for order in ("cumulative", "tottime"):
                pstats.Stats(profile, stream=sys.stderr).sort_stats(order).print_stats(70)
    return figures


def resumed(asked: argparse.Namespace, storage: Path) -> dict[str, float]:
    """Let the sweep go on, and return what it takes until its first trial."""
    groups, found = groups_of(asked), {}
    with without_ray(storage, groups, CPU):
        made = tuner_of(plan_of(storage, resume="scale", add_trials=10))
        began, worked = time.perf_counter(), time.thread_time()

        def has_begun(controller: TuneController) -> bool:
            found["resume_s"] = round(time.perf_counter() - began, 2)
            found["resume_cpu_s"] = round(time.thread_time() - worked, 2)
            return bool(controller._staged_trials)

        simulated(groups, 1, made.fit, has_begun)
    return found


def groups_of(asked: argparse.Namespace) -> Groups:
    """Return the groups of one sweep."""
    return Groups(Clock("cpu" if asked.of_cpu else "real"), asked.groups)


def plain_ray(asked: argparse.Namespace, storage: Path) -> dict[str, float]:
    """Run the same with Ray's own parts for as long as was asked for, and return the figures."""
    rays = tune.Tuner(
        PlainTrainable,
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric="val_accuracy",
            mode="max",
            search_alg=OptunaSearch(seed=0),
            scheduler=ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=3),
            num_samples=asked.trials,
            max_concurrent_trials=asked.groups,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(name="plain", storage_path=str(storage), verbose=0),
    )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    until = time.perf_counter() + 60 * asked.plain_minutes

    def enough(controller: TuneController) -> bool:
        return time.perf_counter() > until or len(controller.get_trials()) >= asked.trials

    groups = groups_of(asked)
    with without_ray(storage, groups, CPU):
        return simulated(groups, asked.trials, rays.fit, enough)


class PlainTrainable(tune.Trainable):
    """Is never made."""


def simulated(
    groups: Groups, trials: int, fit: Callable[[], Any], until: Callable[[TuneController], bool]
) -> dict[str, float]:
    """Let Tune fit with simulated groups until that is true, and return the figures."""
    driver = Driver(groups, trials, until)
    try:
        fit()
    except EnoughError:
        pass
    finally:
        driver.undo()
    return driver.figures() if len(driver.cpu_at) > 101 else {}


if __name__ == "__main__":
    main()
