"""How good the search is: the project's own searcher and schedulers against Ray's, on tables of real trainings.

Nothing is trained: the learning curves are tables (see the READMEs of ``search_tables`` and ``public_tables``). A sweep
has 8 workers that train at once, each for as long as its table says, and ends after 700 epochs. The real
``StudySearcher`` and ``make_scheduler`` objects are called as Tune calls them; a proposal goes to the nearest row not
used yet, and the searcher is told that row. "ray" is Ray's ``OptunaSearch`` (Optuna's TPE) with ``ASHAScheduler``
(reduction 3, grace 1), "ray-random" the same scheduler with random search; others are named <search>+<scheduler>.

The regret of a sweep is the lowest loss that it has seen less the lowest of the table. The speed-up of a strategy is
the epochs after which Ray's median regret is what it is after 700, over the epochs the strategy takes to the same
(geometric mean over tasks; one that does not get there counts as 700 epochs). Its wins are the sweeps that end with
less regret than Ray's with the same seed, ties counted half. Lower bounds: 95 % over seeds, by bootstrap.

Prints, last, a JSON object for the product's default (the first of --strategies that is not Ray's).

    python tests/benchmarks/search_quality.py [--seeds 20] [--tables FILE ...] [--strategies ...]
"""

from __future__ import annotations

import argparse
import heapq
import json
import logging
import math
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import FloatDistribution
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import InMemoryStorage
from ray.tune.schedulers import ASHAScheduler, TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher
from ray.tune.search.optuna import OptunaSearch

from experiments.sweep.decide.schedulers.factory import make_scheduler
from experiments.sweep.decide.search.searcher import StudySearcher
from experiments.sweep.define.budget import Budget
from experiments.sweep.define.options import SweepOptions
from experiments.sweep.define.search_space import SearchSpace

TABLES = Path(__file__).resolve().parent / "search_tables"
WORKERS, EPOCHS = 8, 700
BOOTSTRAPS = 2000
WORST = 1e9
"""The lowest loss of a sweep that has not seen a finite one."""

Array = npt.NDArray[Any]


@dataclass(eq=False)
class SimulatedTrial:
    """What searchers and schedulers look at in one of Tune's trials."""

    trial_id: str
    row: int
    status: str = "PENDING"
    epoch: int = 0
    last_result: dict[str, Any] = field(default_factory=dict)

    def set_status(self, status: str) -> None:
        self.status = status


class Strategy:
    """A searcher and a scheduler, with the one thing Tune has no call for: the row that a proposal went to."""

    def __init__(self, searcher: Searcher, scheduler: TrialScheduler) -> None:
        self.searcher = ConcurrencyLimiter(searcher, max_concurrent=WORKERS)
        self.scheduler = scheduler
        scheduler.set_search_properties("loss", "min")

    def tell_row(self, trial_id: str, row: Array) -> None:
        """Put the hyperparameters of the row in the place of those proposed."""
        inner = self.searcher.searcher
        study = inner.study if isinstance(inner, StudySearcher) else inner._ot_study
        number = inner._numbers[trial_id] if isinstance(inner, StudySearcher) else inner._ot_trials[trial_id].number
        optuna_id = study.get_trials(deepcopy=False)[number]._trial_id
        for index, value in enumerate(row):
            study._storage.set_trial_param(optuna_id, f"u{index}", float(value), FloatDistribution(0.0, 1.0))


class SimulatedSweep:
    """A sweep on a table, event by event; stands in for Tune's controller, too."""

    def __init__(self, strategy: Strategy, table: Mapping[str, Array]) -> None:
        self.strategy, self.table = strategy, table
        self.epochs = table["loss"].shape[1]
        self.trials: list[SimulatedTrial] = []
        self.unused = np.ones(len(table["u"]), dtype=bool)
        self.search_alg = SimpleNamespace(searcher=strategy.searcher)
        self.events: list[tuple[float, int, SimulatedTrial]] = []
        self.running, self.now, self.count = 0, 0.0, 0

    def get_trials(self) -> list[SimulatedTrial]:
        return self.trials

    def run(self) -> Array:
        """Return the lowest loss seen after each epoch."""
        lowest: list[float] = []
        self.fill()
        while self.events and len(lowest) < EPOCHS:
            self.now, _, trial = heapq.heappop(self.events)
            loss = self.report(trial)
            best = lowest[-1] if lowest else WORST
            lowest.append(min(loss, best) if math.isfinite(loss) else best)
            self.fill()
        return np.array(lowest + lowest[-1:] * (EPOCHS - len(lowest)))

    def fill(self) -> None:
        """Take proposals and start trials as Tune does while there is room."""
        while self.unused.any() and self.propose():
            pass
        while self.running < WORKERS and (trial := self.next_trial()):
            trial.set_status("RUNNING")
            self.running += 1
            self.start_epoch(trial)

    def next_trial(self) -> SimulatedTrial | None:
        """Return the trial that the scheduler names, else the first that is pending."""
        named = self.strategy.scheduler.choose_trial_to_run(cast(Any, self))
        pending = (trial for trial in self.trials if trial.status == "PENDING")
        return cast(SimulatedTrial, named) if named is not None else next(pending, None)

    def propose(self) -> bool:
        name = f"t{len(self.trials)}"
        config = self.strategy.searcher.suggest(name)
        if config is None:
            return False
        point = np.array([config[f"u{index}"] for index in range(self.table["u"].shape[1])])
        distances = ((self.table["u"] - point) ** 2).sum(axis=1)
        row = int(np.where(self.unused, distances, math.inf).argmin())
        self.unused[row] = False
        self.strategy.tell_row(name, self.table["u"][row])
        self.trials.append(SimulatedTrial(name, row))
        self.strategy.scheduler.on_trial_add(cast(Any, self), cast(Any, self.trials[-1]))
        return True

    def start_epoch(self, trial: SimulatedTrial) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + float(self.table["sec"][trial.row]), self.count, trial))

    def report(self, trial: SimulatedTrial) -> float:
        """Hand the trial's next report to searcher and scheduler, do as the scheduler says, and return the loss."""
        searcher, scheduler = self.strategy.searcher, self.strategy.scheduler
        trial.epoch += 1
        loss = float(self.table["loss"][trial.row, trial.epoch - 1])
        result = {"loss": loss, "epoch": trial.epoch, "training_iteration": trial.epoch, "trial_id": trial.trial_id}
        trial.last_result = result
        spent = trial.epoch >= self.epochs or not math.isfinite(loss)
        decision = "STOP" if spent else scheduler.on_trial_result(cast(Any, self), cast(Any, trial), result)
        if decision == "CONTINUE":
            searcher.on_trial_result(trial.trial_id, result)
            self.start_epoch(trial)
            return loss
        self.running -= 1
        if decision == "PAUSE":
            searcher.on_trial_result(trial.trial_id, result)
            trial.set_status("PAUSED")
        else:
            scheduler.on_trial_complete(cast(Any, self), cast(Any, trial), result)
            searcher.on_trial_complete(trial.trial_id, result)
            trial.set_status("TERMINATED")
        return loss


def make_strategy(name: str, seed: int, dimensions: int, epochs: int) -> Strategy:
    """Return "ray", "ray-random" or <search>+<scheduler>."""
    budget = Budget(epochs=epochs)
    names = [f"u{index}" for index in range(dimensions)]
    if name.startswith("ray"):
        sampler = RandomSampler(seed=seed) if name == "ray-random" else TPESampler(seed=seed)
        space = {n: FloatDistribution(0.0, 1.0) for n in names}
        searcher = OptunaSearch(space, metric="loss", mode="min", sampler=sampler)
        asha = ASHAScheduler(time_attr="epoch", max_t=epochs, grace_period=1, reduction_factor=3)
        return Strategy(searcher, asha)
    search, _, scheduler = name.partition("+")
    own = StudySearcher(
        SearchSpace({n: FloatDistribution(0.0, 1.0) for n in names}),
        metric="loss",
        mode="min",
        baseline={},
        sampler=search,
        seed=seed,
        study_name=f"{name}-{seed}",
        storage=InMemoryStorage(),
        budget=budget,
    )
    endless = 10**9  # a sweep is cut off by its epochs
    return Strategy(own, make_scheduler(cast(Any, scheduler), budget, trials=endless, groups=WORKERS))


def regrets(task: Path, name: str, seeds: int) -> Array:
    """Return the regret of every seed's sweep after each epoch, (seeds, 700); each task has seeds of its own."""
    with np.load(task) as file:
        table = dict(file)
    optimum = float(table["loss"][np.isfinite(table["loss"])].min())
    began, shape = time.time(), (table["u"].shape[1], table["loss"].shape[1])
    own = [zlib.crc32(f"{task.stem} {seed}".encode()) for seed in range(seeds)]
    curves = [SimulatedSweep(make_strategy(name, seed, *shape), table).run() - optimum for seed in own]
    final = float(np.median([curve[-1] for curve in curves]))
    print(f"{task.stem:11s} {name:22s} median regret {final:.5f}  ({time.time() - began:.0f} s)", flush=True)
    return np.array(curves)


def epochs_to(curves: Array, target: float) -> int:
    """Return after how many epochs the median regret is at most ``target``."""
    reached = np.median(curves, axis=0) <= target
    return int(reached.argmax()) + 1 if reached.any() else EPOCHS


def speedup(ray: Sequence[Array], own: Sequence[Array]) -> float:
    """Return the geometric mean over tasks."""
    logs = []
    for theirs, ours in zip(ray, own, strict=True):
        target = float(np.median(theirs[:, -1]))
        logs.append(math.log(epochs_to(theirs, target) / epochs_to(ours, target)))
    return math.exp(sum(logs) / len(logs))


def wins(ray: Sequence[Array], own: Sequence[Array]) -> float:
    """Return the share of pairs in which ``own`` ends with less regret, ties counted half."""
    shares = [np.mean((o[:, -1] < r[:, -1]) + 0.5 * (o[:, -1] == r[:, -1])) for r, o in zip(ray, own, strict=True)]
    return float(np.mean(shares))


def lower_bound(measure: Callable[[list[Array], list[Array]], float], ray: list[Array], own: list[Array]) -> float:
    """Return the value that 95 % of resamplings of the seeds exceed; each task's seeds are drawn anew."""
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(BOOTSTRAPS):
        picks = [generator.integers(len(r), size=len(r)) for r in ray]
        drawn.append(
            measure([r[p] for r, p in zip(ray, picks, strict=True)], [o[p] for o, p in zip(own, picks, strict=True)])
        )
    return float(np.quantile(drawn, 0.05))


def compared(ray: Mapping[str, Array], own: Mapping[str, Array]) -> dict[str, Any]:
    """Return what the benchmark says of one strategy."""
    theirs, ours = list(ray.values()), [own[task] for task in ray]
    tasks = {
        task: {
            "speedup": speedup([ray[task]], [own[task]]),
            "wins": wins([ray[task]], [own[task]]),
            "regret": float(np.median(own[task][:, -1])),
            "regret_ray": float(np.median(ray[task][:, -1])),
        }
        for task in ray
    }
    return {
        "speedup": speedup(theirs, ours),
        "speedup_low": lower_bound(speedup, theirs, ours),
        "wins": wins(theirs, ours),
        "wins_low": lower_bound(wins, theirs, ours),
        "tasks": tasks,
    }


def main() -> None:
    options = SweepOptions()
    default = f"{options.search}+{options.scheduler}"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tables", nargs="+", type=Path, default=sorted(TABLES.glob("*.npz")), help="files")
    parser.add_argument("--strategies", nargs="+", default=[default, "ray-random"], help="beside ray")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.disable(logging.WARNING)  # asha tells of each misleading rung
    found = {n: {t.stem: regrets(t, n, given.seeds) for t in given.tables} for n in ["ray", *given.strategies]}
    said = {name: compared(found["ray"], found[name]) for name in given.strategies}
    for name, value in said.items():
        print(f"{name:22s} {json.dumps({k: round(v, 3) for k, v in value.items() if k != 'tasks'})}", flush=True)
    first = next((name for name in given.strategies if not name.startswith("ray")), given.strategies[0])
    result = {
        "strategy": first,
        "seeds": given.seeds,
        **said[first],
        "others": {n: v for n, v in said.items() if n != first},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
