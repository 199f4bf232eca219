"""How good the search is: strategies, ours and others', in simulated sweeps on learning curves that others published.

Nothing is trained. A task is a table of curves (``.npz``, see ``public_tables/README.md``; a proposal goes to the
nearest row not used yet, and the strategy is told that row, except NePS) or one of LCBench's, whose published
surrogate, ``lcbench.onnx``, gives the curve of the proposal itself. A sweep has workers that
train at once, each epoch as long as the table says, and ends after so many epochs. A trial whose loss is not finite
has failed. Every task and seed has different random points: points that are the same for all tasks make a lucky set
look like a law.

The strategies are in ``strategies.py``, and in ``rival.py`` those that have environments of their own. With
--learn-from the first of ours begins with the five best trials of an earlier sweep of 200 epochs:

- same: of the same task, with another seed;
- related: of another of its family (and, as the search was chosen on every second task, of its own half);
- reversed: of the same task, with a search for the highest loss instead of the lowest.

With --objectives a sweep has two, the loss and the seconds of an epoch, on LCBench's tasks, and what stands for its
loss is the share that its trials do not yet dominate of the rectangle between the best of 2,000 random configurations
trained in full and their ninth decile, with the logarithm of the seconds.

- speed: the epochs (or seconds) that the other takes to a loss, over those that ours takes, geometric mean over tasks.
  The loss is the worse one of the two medians at the end, so that both get there.
- wins: pairs of sweeps, each of ours with each of the other's on the same task, that end lower; ties count half.
- rank: of a sweep among those of all strategies; 1 is the best.
- behind: the share of tasks on which a strategy is slower than ray-random.
- CPU: seconds a sweep, of the simulation and of the strategy's decisions, without the start of its process.

Intervals: 90 %, tasks and seeds resampled (so the lower bound is one of 95 %).

Prints, last, a JSON object for the product's default (the first strategy that is ours) at the last of --epochs.

    python tests/tools/benchmarks/scoreboard.py [--tables DIR] [--seeds 8] [--epochs 200 1000] [--workers 8]
        [--strategies ...] [--rivals all|...]
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import logging
import math
import os
import sys
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias, cast

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch and OpenBLAS as they are imported; a sweep has one core

import numpy as np
import optuna

from gaudi_tune.define.options import PROJECT_ROOT, SweepOptions
from gaudi_tune.plan.earlier_sweeps import best_that_fit
from gaudi_tune.plan.outside_results import Result
from gaudi_tune.show.result import in_list

sys.path[0] = str(PROJECT_ROOT)  # the tests are no package that is installed
from tests.tools.benchmarks.rival import FOLDER, RIVALS, Rival, end_process, prepare
from tests.tools.benchmarks.strategies import LEARNING, Array, OnRecord, Strategy, Trial, make_strategy
from tests.tools.benchmarks.tasks import TABLES, WORST, Task, earlier_task, find_task, find_tasks, with_seconds

Sweep: TypeAlias = list[tuple[float, float, float]]
"""Epoch, second and loss of each improvement in a sweep, and its end."""
BOOTSTRAPS = 1000
STARTS, POINTS = 8, 200
"""From which epoch on sweeps are compared, and at how many moments, closer together where they begin."""
EARLIER = 200
"""The epochs of an earlier sweep."""


def simulate(strategy: Strategy, task: Task, workers: int, epochs: int) -> Sweep:
    """Return epoch, second and loss of each improvement in a sweep, and its end."""
    take, reached, numbers = task.opened(), task.measure(), itertools.count()
    events: list[tuple[float, int, Trial]] = []
    improved, lowest, now = [(0.0, 0.0, WORST)], WORST, 0.0

    def train(trial: Trial) -> None:
        heapq.heappush(events, (now + trial.curve[1](trial.epoch + 1)[1], next(numbers), trial))

    for epoch in range(1, epochs + 1):
        while len(events) < workers and (trial := strategy.next(take)):
            train(trial)
        if not events:  # every row of the table is used
            break
        now, _, trial = heapq.heappop(events)
        trial.epoch += 1
        loss = trial.curve[1](trial.epoch)[0]
        if (value := reached(trial, loss)) < lowest:
            lowest = value
            improved.append((epoch, now, value))
        if strategy.report(trial, loss, trial.epoch >= task.epochs or not math.isfinite(loss)) == "CONTINUE":
            train(trial)
    return [*improved, (epochs, now, lowest)]


def simulated(folder: Path, sweeps: Sequence[tuple[str, str, int, int, int]]) -> Iterator[tuple[Sweep, float]]:
    """Yield these sweeps in their order, each of a task of the folder, a strategy, a seed, workers and epochs, and the
    seconds of CPU that it took; as many are simulated at once as there are cores.
    """
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(_simulated, itertools.repeat(folder), sweeps)


def _simulated(folder: Path, sweep: tuple[str, str, int, int, int]) -> tuple[Sweep, float]:
    """Simulate one sweep in a process of the pool."""
    name_of_task, name, seed, workers, epochs = sweep
    task = find_task(folder, name_of_task)
    own, kind = zlib.crc32(f"{task.name} {seed}".encode()), name.partition("+")[2].partition("+")[2]
    given: dict[str, Any] = {"objectives": task.objectives}
    if kind:
        given["learned"] = learned(name.removesuffix(f"+{kind}"), earlier_task(folder, task, kind, seed), seed, workers)
    began = time.process_time()
    strategy = made(name, own, task.dimensions, task.epochs, workers, **given)
    improved = simulate(strategy, task, workers, epochs)
    return improved, time.process_time() - began + (strategy.cpu if isinstance(strategy, Rival) else 0)


def learned(name: str, source: Task, seed: int, workers: int) -> list[dict[str, Any]]:
    """Return what --learn-from takes of an earlier sweep."""
    own = zlib.crc32(f"{source.name} {seed} earlier".encode())
    earlier = cast(OnRecord, made(name, own, source.dimensions, source.epochs, workers))
    simulate(earlier, source, workers, EARLIER)
    space, objective = earlier.own._space, earlier.state.objectives[0]
    rows = [in_list(trial, space.ranges, earlier.state.objectives) for trial in earlier.state.searched]
    return best_that_fit([Result(row["config"], row["value"]) for row in rows], space, objective)[0]


def made(name: str, seed: int, dimensions: int, epochs: int, workers: int, **given: Any) -> Strategy:
    """Return the strategy of that name, ours or a rival in its process."""
    if name not in RIVALS:
        return make_strategy(name, seed, dimensions, epochs, workers, **given)
    file, kind = RIVALS[name]
    return Rival(FOLDER / f"{file}.py", kind, seed, dimensions, epochs, workers, given.get("objectives", 1))


class Board:
    """What strategies have over each other after so many epochs, each figure with those of redrawn tasks and seeds."""

    def __init__(self, found: Mapping[str, Sequence[Sequence[Array]]], epochs: int, unit: str) -> None:
        """Compare.

        Args:
            found: For each strategy and task the sweeps of all seeds.
            epochs: After which to compare; for seconds, the same share of the shortest sweep of the task.
            unit: "epochs" or "seconds".
        """
        self.names, column = list(found), int(unit == "seconds")
        generator = np.random.default_rng(0)
        tasks = len(next(iter(found.values())))
        self.drawn = generator.integers(tasks, size=(BOOTSTRAPS, tasks))
        self.drawn[0] = np.arange(tasks)
        pairs = list(itertools.product(self.names, self.names))
        self.logs = {pair: np.empty((BOOTSTRAPS, tasks)) for pair in pairs}
        self.won = {pair: np.empty((BOOTSTRAPS, tasks)) for pair in pairs}
        for task in range(tasks):
            ends = [sweep[-1] for name in self.names for sweep in found[name][task]]
            end = min(at[column] * epochs / at[0] for at in ends)
            moments = end * np.geomspace(STARTS / epochs, 1, POINTS)
            finals, medians, weights = {}, {}, {}
            for name in self.names:
                lowest = np.array([lowest_at(sweep, moments, column) for sweep in found[name][task]])
                seeds = generator.integers(len(lowest), size=(BOOTSTRAPS, len(lowest)))
                seeds[0] = np.arange(len(lowest))
                finals[name], medians[name] = lowest[:, -1], np.median(lowest[seeds], axis=1)
                weights[name] = np.array([np.bincount(s, minlength=len(lowest)) for s in seeds]) / len(lowest)
            for own, other in pairs:
                target = np.maximum(medians[own][:, -1:], medians[other][:, -1:])
                took = [(medians[name] <= target).argmax(axis=1) for name in (own, other)]
                self.logs[own, other][:, task] = np.log(moments[took[1]] / moments[took[0]])
                less, same = np.less.outer(finals[own], finals[other]), np.equal.outer(finals[own], finals[other])
                self.won[own, other][:, task] = np.einsum(
                    "bi,ij,bj->b", weights[own], less + same / 2, weights[other], optimize=True
                )

    def redrawn(self, figures: Array) -> Array:
        """Return the mean over tasks, as they are first and then redrawn."""
        return cast(Array, np.take_along_axis(figures, self.drawn, axis=1).mean(axis=1))

    def speed(self, own: str, other: str) -> Array:
        return np.exp(self.redrawn(self.logs[own, other]))

    def wins(self, own: str, other: str) -> Array:
        return self.redrawn(self.won[own, other])

    def rank(self, own: str) -> Array:
        return 1 + self.redrawn(np.array(sum(1 - self.won[own, other] for other in self.names if other != own)))

    def behind(self, own: str, other: str) -> float:
        return float((self.logs[own, other][0] < 0).mean())


def lowest_at(sweep: Array, moments: Array, column: int) -> Array:
    """Return the lowest loss at each moment, in epochs (column 0) or seconds (1)."""
    return cast(Array, sweep[np.searchsorted(sweep[:-1, column], moments, side="right") - 1, 2])


def between(figures: Array) -> str:
    low, high = np.quantile(figures, [0.05, 0.95])
    return f"{figures[0]:.2f} ({low:.2f} to {high:.2f})"


def why_not(name: str) -> str:
    """Return why a strategy cannot propose, "" if it can; the environment of a rival is made first."""
    try:
        if name in RIVALS:
            prepare(name)
        made(name, 0, 2, 9, 1).next(lambda point: (point, lambda epoch: (0.0, 1.0)))
    except Exception as error:  # each package has its own needs
        return str(error)
    finally:
        end_process()
    return ""


def printed(board: Board, own: str, cpu: Mapping[str, float], when: str) -> dict[str, float]:
    """Print a table, and return the figures of ours."""
    rival = min((name for name in board.names if "+" not in name), key=lambda name: board.rank(name)[0])
    print(f"\n{when}; the best rival is {rival}")
    heads = "rank", "ours over it", "over ray-random", "wins over that", "behind, CPU"
    print(f"{'':20s} {' '.join(f'{head:22s}' for head in heads)}")
    for name in sorted(board.names, key=lambda name: board.rank(name)[0]):
        figures = board.rank(name), board.speed(own, name), board.speed(name, "ray-random")
        columns = [*map(between, figures), between(board.wins(name, "ray-random"))]
        columns.append(f"{board.behind(name, 'ray-random'):.0%}, {cpu[name]:.1f} s")
        print(f"{name:20s} {' '.join(f'{column:22s}' for column in columns)}")
    speed, over_random = board.speed(own, rival), board.speed(own, "ray-random")
    return {
        "speedup_best_rival": speed[0],
        "low": np.quantile(speed, 0.05),
        "speedup_random": over_random[0],
        "wins": board.wins(own, rival)[0],
        "mean_rank": board.rank(own)[0],
    }


def main() -> None:
    options = SweepOptions()
    default = f"{options.search}+{options.scheduler}"
    strategies = [default, f"random+{options.scheduler}", "ray-random"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, default=TABLES, help="folder of .npz, and lcbench.onnx and .json")
    parser.add_argument("--tasks", choices=["all", "even", "odd"], default="all", help="by their place, from 0")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rival-seeds", type=int, help="of --rivals, if fewer: some are slow")
    parser.add_argument("--epochs", nargs="+", type=int, default=[200, 1000])
    parser.add_argument("--workers", nargs="+", type=int, default=[8])
    parser.add_argument("--strategies", nargs="+", help="two of Ray's and Optuna's own beside ours, if not given")
    parser.add_argument("--learn-from", choices=LEARNING, help="for the first of ours: which earlier sweep")
    parser.add_argument("--objectives", action="store_true", help="two: the loss, and the seconds of an epoch")
    parser.add_argument("--rivals", nargs="+", default=[], choices=["all", *RIVALS], help="more strategies")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.disable(logging.WARNING)  # asha tells of each misleading rung
    rivals = RIVALS if "all" in given.rivals else given.rivals
    others = ["ray-nsgaii"] if given.objectives else ["ray-tpe", "optuna"]
    names = list(dict.fromkeys([*(given.strategies or [*strategies, *others]), "ray-random", *rivals]))
    if given.learn_from:
        names.insert(0, f"{names[0]}+{given.learn_from}")
    last = max(given.epochs)
    parts = {"all": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}
    for name in tuple(names):
        if reason := why_not(name):
            if name not in RIVALS:
                parser.error(f"--strategies {name}: {reason}")
            names.remove(name)
            print(f"{name} is left out: {reason}")
    try:
        tasks = (with_seconds if given.objectives else find_tasks)(given.tables)[parts[given.tasks]]
    except (OSError, ImportError) as error:
        parser.error(f"--tables {given.tables}: {error}")
    if not tasks:
        parser.error(f"--tables {given.tables}: there is no lcbench.onnx{'' if given.objectives else ', and no .npz'}")
    own = next((name for name in names if "+" in name), names[0])
    said: dict[str, Any] = {}
    groups = list(itertools.product(names, tasks))  # a rival's process serves one sweep after another
    seeds = {name: given.rival_seeds or given.seeds if name in RIVALS else given.seeds for name in names}
    for workers in given.workers:
        found: dict[str, list[list[Array]]] = {name: [] for name in names}
        wanted = [(task.name, name, seed, workers, last) for name, task in groups for seed in range(seeds[name])]
        done = simulated(given.tables, wanted)
        cpu = dict.fromkeys(names, 0.0)
        for number, (name, task) in enumerate(groups, 1):
            sweeps, took = zip(*itertools.islice(done, seeds[name]), strict=True)
            found[name].append([np.array(sweep) for sweep in sweeps])
            median, each = np.median([sweep[-1][2] for sweep in sweeps]), sum(took) / len(took)
            cpu[name] += each / len(tasks)
            of = f"{number:3d} of {len(groups)}"
            print(f"{of} {task.name:40s} {name:20s} median {median:.5f} ({each:.1f} s a sweep)", flush=True)
        for unit, epochs in itertools.product(["seconds", "epochs"], sorted(given.epochs)):
            when = f"{workers} workers, {epochs} epochs, in {unit}"
            said = printed(Board(found, epochs, unit), own, cpu, when)
    print(json.dumps({key: round(float(value), 3) for key, value in said.items()} | {"tasks": len(tasks)}))


if __name__ == "__main__":
    main()
