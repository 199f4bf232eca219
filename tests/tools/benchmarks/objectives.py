"""How good the search is with two objectives: strategies in simulated sweeps on LCBench's published surrogate.

The objectives are the validation error and the seconds of an epoch (those of the whole training over its epochs: from
epoch to epoch the surrogate is rough), less of both being better. Large networks are better and slower. A sweep has
workers that train at once, as ``scoreboard.py`` simulates them, and is worth the hypervolume of what its trials have
reached: each trial counts with the report that has its lowest error.
Error and logarithm of seconds are scaled by 2,000 random configurations trained in full: 0 is the least of them, and 1,
the corner from which volume counts, what nine in ten are below.

<search>+<scheduler> is ours. With -alone it is told of the error alone, as a sweep with one objective is.

    pip install onnxruntime
    python tests/tools/benchmarks/objectives.py --tables DIR [--tasks 5] [--seeds 10] [--epochs 200] [--workers 8]
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import logging
import sys
import warnings
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import optuna
from optuna.distributions import FloatDistribution

from gaudi_tune.define.options import PROJECT_ROOT

sys.path[0] = str(PROJECT_ROOT)
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective, point_in
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.sweep.policies.schedulers.factory import SCHEDULERS
from gaudi_tune.sweep.record.ranking import on_front
from gaudi_tune.sweep.search.proposer import Proposer
from tests.tools.benchmarks.scoreboard import BOOTSTRAPS, LCBench, find_tasks
from tests.tools.benchmarks.strategies import Array, OnRecord, Trial

RANDOM = 2000
"""Configurations that scale the objectives of a task."""
AGAINST = "random+asha-promote"


class OnTwo(OnRecord):
    """A sweep with two objectives."""

    seconds = 0.0

    def point(self, result: Mapping[str, Any]) -> tuple[float, ...]:
        return point_in(self.state.objectives, {**result, "seconds": self.seconds})


def strategy_of(name: str, seed: int, task: LCBench, workers: int) -> OnTwo:
    """Return the strategy of that name."""
    search, scheduler = name.removesuffix("-alone").split("+")
    objectives = [Objective("loss", "min"), Objective("seconds", "min")][: 1 if name.endswith("-alone") else 2]
    space = {f"u{index}": FloatDistribution(0.0, 1.0) for index in range(task.dimensions)}
    budget = Budget(epochs=task.epochs)
    searcher = Proposer(
        SearchSpace(space), objectives=objectives, baseline={}, sampler=search, seed=seed,
    )  # fmt: skip
    policy = SCHEDULERS[cast(Any, scheduler)](budget, objectives, SearchSpace(space))
    return OnTwo(searcher, policy, workers, budget, objectives)


def simulate(strategy: OnTwo, task: LCBench, workers: int, epochs: int, least: float) -> Array:
    """Return error and seconds of each trial, at its lowest error. None takes less than the ``least`` seconds: far from
    what it was made of, the surrogate may say anything."""
    take, numbers, now = task.opened(), itertools.count(), 0.0
    events: list[tuple[float, int, Trial]] = []
    reached: dict[str, tuple[float, float]] = {}
    costs: dict[str, float] = {}

    def train(trial: Trial) -> None:
        heapq.heappush(events, (now + trial.curve[1](trial.epoch + 1)[1], next(numbers), trial))

    for _ in range(epochs):
        while len(events) < workers and (trial := strategy.next(take)):
            costs.setdefault(trial.trial_id, max(least, in_full(task, [trial.curve[0]])[1, 0]))
            train(trial)
        now, _, trial = heapq.heappop(events)
        trial.epoch += 1
        point = trial.curve[1](trial.epoch)[0], costs[trial.trial_id]
        reached[trial.trial_id] = min(point, reached.get(trial.trial_id, point), key=lambda known: known[0])
        strategy.seconds = point[1]
        if strategy.report(trial, point[0], trial.epoch >= task.epochs) == "CONTINUE":
            train(trial)
    return np.array(list(reached.values()))


def in_full(task: LCBench, points: Sequence[Array]) -> Array:
    """Return error and seconds of an epoch of configurations that are trained in full; (2, points)."""
    inputs = np.array([[1 + task.epochs, *task.values(point)] for point in points], dtype=np.float32)
    seconds, errors = task.ask(inputs)
    return np.stack([errors, np.maximum(seconds, 1e-3) / task.epochs])


def scale_of(task: LCBench) -> Array:
    """Return the least and the ninth decile of error and logarithm of seconds; (2, 2)."""
    errors, seconds = in_full(task, [*np.random.default_rng(0).random((RANDOM, task.dimensions))])
    return np.quantile(np.stack([errors, np.log(seconds)]), [0.0, 0.9], axis=1)


def hypervolume(points: Array, scale: Array) -> float:
    """Return the area that points dominate, of the unit square."""
    scaled = (np.stack([points[:, 0], np.log(points[:, 1])], axis=1) - scale[0]) / (scale[1] - scale[0])
    inside = scaled[(scaled < 1).all(axis=1)]
    area, above = 0.0, 1.0
    for x, y in sorted(inside[on_front((-inside).tolist())].tolist()):
        area, above = area + (1 - x) * (above - y), y
    return area


def main() -> None:
    usual = [
        AGAINST, "gp+asha-promote", "tpe+asha-promote", "nsgaii+asha-promote", "gp+asha-promote-alone",
        "random+asha-promote-alone", "random+asha", "random+fifo",
    ]  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True, help="folder of lcbench.onnx and lcbench.json")
    parser.add_argument("--tasks", type=int, default=5, help="how many, by name")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--strategies", nargs="+", default=usual)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.disable(logging.WARNING)
    tasks = [task for task in find_tasks(given.tables) if isinstance(task, LCBench)][: given.tasks]
    found = {name: np.zeros((len(tasks), given.seeds)) for name in dict.fromkeys([AGAINST, *given.strategies])}
    for place, task in enumerate(tasks):
        scale = scale_of(task)
        least = float(np.exp(scale[0, 1]))
        for name, volumes in found.items():
            for seed in range(given.seeds):
                own = zlib.crc32(f"{task.name} {seed}".encode())
                points = simulate(strategy_of(name, own, task, given.workers), task, given.workers, given.epochs, least)
                volumes[place, seed] = hypervolume(points, scale)
            print(f"{task.name} {name:24s} {volumes[place].mean():.4f} ± {volumes[place].std():.4f}", flush=True)
    generator = np.random.default_rng(0)
    drawn = [(generator.integers(len(tasks), size=len(tasks)), generator.integers(given.seeds, size=given.seeds))
             for _ in range(BOOTSTRAPS)]  # fmt: skip
    for name, volumes in found.items():
        one, other = volumes[:, :, None], found[AGAINST][:, None, :]
        won = (one > other) + (one == other) / 2
        shares = [won[of][:, seeds][:, :, seeds].mean() for of, seeds in drawn]
        low, high = np.quantile(shares, [0.05, 0.95])
        share = f"{won.mean():.0%} ({low:.0%} to {high:.0%})"
        print(f"{name:24s} hypervolume {volumes.mean():.4f}, wins {share} over {AGAINST}")


if __name__ == "__main__":
    main()
