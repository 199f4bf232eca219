"""The kinds of sweeps that are compared, and how one is run."""

from __future__ import annotations

import io
import math
import os
import random
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import optuna
from ray import tune
from ray.train._internal.session import _FutureTrainingResult
from ray.tune.schedulers import ASHAScheduler, HyperBandForBOHB, MedianStoppingRule, PopulationBasedTraining
from ray.tune.schedulers.pb2 import PB2
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.search.optuna import OptunaSearch

from gaudi_tune import Budget, Experiment, build_tuner
from gaudi_tune.base.files import OUTBOX_FILE, STATE_LOG
from gaudi_tune.base.names import test_metric
from gaudi_tune.define.experiment import as_name
from gaudi_tune.devices.cpu import CPU
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.sweep.record.sweep_file import read_sweep_file
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import number_in_name
from tests.helpers import simulated_groups
from tests.helpers.deliveries import deliver
from tests.helpers.simulated_sweep import without_ray
from tests.tools.agree.groups import KilledError, RealActors, keep_files
from tests.tools.agree.loops import Curve, Mishap
from tests.tools.agree.places import disagreements, shown_when_killed
from tests.tools.agree.truth import Truth

SPACE: dict[str, Any] = {"x": tune.uniform(-1.0, 1.0)}
GRID: dict[str, Any] = {"x": tune.grid_search([0.1 * number for number in range(8)])}
OTHER_BESTS = {"best_loss": 9.0, "best_epoch": 9, "value": 8.0, "trial": 77, "config": "c", "at": 3, "status": "s"}
BOUNDS: dict[str, Any] = {"hyperparam_bounds": {"x": [-1.0, 1.0]}}
PBT: dict[str, Any] = {"time_attr": "training_iteration", "hyperparam_mutations": {"x": [-0.5, 0.0, 0.5]}}


def branching(trial: optuna.Trial) -> dict[str, Any]:
    """Return what a trial of a space that branches has besides what it asks for."""
    trial.suggest_float("x", -1.0, 1.0)
    kind = trial.suggest_categorical("kind", ["a", "b", None])
    if kind == "a":
        trial.suggest_float("a.rate", 0.1, 1.0, log=True)
        trial.suggest_int("width", 1, 4)
    elif kind == "b":
        trial.suggest_float("b.rate", 0.001, 0.01, log=True)
    return {"note": "none" if kind is None else kind}


@dataclass(frozen=True)
class Kind:
    """A kind of sweep."""

    curve: Curve = field(default_factory=Curve)
    options: Mapping[str, Any] = field(default_factory=dict)
    space: Any = field(default_factory=lambda: SPACE)
    baseline: Mapping[str, Any] = field(default_factory=dict)
    objects: Callable[[], Mapping[str, Any]] = dict
    """Makes new objects of Ray for each start."""
    devices: int = 2
    complete: bool = True
    """Whether all its trials end."""
    kill_while: str | None = None
    """What an actor does whenever the sweep is killed: a method of a trainable."""
    asked: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What a person asks on the page, after how many events of the first start."""
    add_trials: int = 0
    """How many trials are added to the sweep when it has ended."""
    clones: bool = False
    """Whether trials continue from checkpoints of others, with other hyperparameters."""
    torn: bool = False
    """Whether a kill tears the last line of each log."""


TRAITS: dict[str, dict[str, Any]] = {
    "default": {},
    **{name: {"options": {"scheduler": name}} for name in ("asha", "hyperband", "median", "fifo")},
    **{name: {"options": {"search": name}} for name in ("random", "tpe", "qmc", "nsgaii")},
    **{f"saves {how}": {"curve": {"saves": how}} for how in ("third", "better", "never")},
    **{how: {"curve": {"mishap": how}} for how in get_args(Mishap)},
    "several reports": {"curve": {"each": 2}},
    "counts from 0": {"curve": {"from_0": True}},
    "counts nothing": {"curve": {"says": "none"}},
    "counts in every second report": {"curve": {"each": 2, "says": "second"}},
    "counts from 1 again": {"curve": {"forgets": True}},
    "max": {"curve": {"metric": "score", "maximizes": True}},
    "max of val_acc": {"curve": {"metric": "val_acc", "maximizes": True}},
    "odd name": {"curve": {"metric": "val/loss@1 (%)"}},
    "steps": {"curve": {"steps": 10}},
    "reports other bests": {"curve": {"also": OTHER_BESTS}},
    "grid": {"space": GRID, "objects": lambda: {"search_alg": BasicVariantGenerator()}, "options": {"num_samples": 1}},
    "twice": {"options": {"num_samples": 2}},
    "single values": {"space": {**SPACE, "width": tune.choice([2])}},
    "mixed space": {"space": {**SPACE, "width": tune.randint(1, 5), "kind": tune.choice(["a", "b"])}},
    "brute force": {"space": {"x": tune.quniform(-1.0, 1.0, 0.25)}, "options": {"search": "BruteForceSampler"}},
    "hyperparameters of our names": {
        "space": {**SPACE, "trial": tune.randint(1, 5), "loss": tune.uniform(1, 2), "status": tune.choice(["a", "b"])}
    },
    "branches": {"space": branching},
    "baseline": {"baseline": {"x": 0.25}},
    "baseline of a branch": {"baseline": {"x": 0.3, "kind": "b", "rate": 0.005}},
    "baseline alone": {"options": {"baseline_only": True, "seeds": 3}, "baseline": {"x": 0.25}},
    "confirmation": {"options": {"confirm": 2, "seeds": 3, "most_seeds": 3}},
    "more seeds": {"options": {"confirm": 1, "seeds": 2}},
    "added trials": {"add_trials": 3},
    "target": {"options": {"target": 0.2}, "complete": False},
    "target of a maximum": {"options": {"target": -0.2}, "complete": False},
    "patience": {"options": {"patience": 3}, "complete": False},
    **{f"time budget of {s} s": {"options": {"time_budget": s}, "complete": False} for s in (2.0, 5.0, 30.0)},
    "checkpoints at each report": {"options": {"checkpoint_minutes": 0}},
    "two objectives": {"options": {"objectives": ("loss:min", "error:min")}},
    "two directions": {"options": {"objectives": ("loss:min", "error:max")}},
    "two directions of a maximum": {"options": {"objectives": ("score:max", "error:min")}},
    "growth": {"options": {"grow": "on"}, "devices": 4},
    "two workers": {"options": {"workers_per_trial": 2}, "devices": 4},
    "several trials a device": {"options": {"trials_per_device": 2}},
    "one trial at a time": {"options": {"max_concurrent_trials": 1}},
    **{name: {"devices": count} for name, count in (("one device", 1), ("four devices", 4), ("many devices", 8))},
    "stop": {"objects": lambda: {"stop": {"training_iteration": 3}}},
    "pbt": {"options": {"scheduler": "pbt"}, "clones": True},
    "Ray's Optuna": {"objects": lambda: {"search_alg": OptunaSearch(seed=1)}},
    "Ray's ASHA": {"objects": lambda: {"scheduler": ASHAScheduler(max_t=6, grace_period=1)}},
    "Ray's median": {"objects": lambda: {"scheduler": MedianStoppingRule(grace_period=1)}},
    "Ray's pbt": {
        "objects": lambda: {"scheduler": PopulationBasedTraining(perturbation_interval=2, **PBT)},
        "clones": True,
    },
    "PB2": {"objects": lambda: {"scheduler": PB2(perturbation_interval=2, **BOUNDS)}, "clones": True},
    "BOHB": {"objects": lambda: {"scheduler": HyperBandForBOHB(max_t=6)}},
    "tried": {"asked": {8: {"do": "try", "config": {"x": 0.125}}, 12: {"do": "try", "config": {"x": -0.75}}}},
    "a point of it tried": {"asked": {8: {"do": "try", "config": {"x": 3 * 0.1}}, 9: {"do": "add", "trials": 2}}},
    "stopped by hand": {"asked": {9: {"do": "stop", "trial": 2}}},
    "more trials by hand": {"asked": {5: {"do": "add", "trials": 4}}},
    "ended by hand": {"asked": {20: {"do": "end"}}, "complete": False},
    "torn logs": {"torn": True},
    **{f"killed in {method}": {"kill_while": method} for method in ("save", "train", "restore", "reset")},
}
"""What makes a kind another one: fields of it; those of the curve and the options come to those of its other traits."""
NAMES = (
    "default", "scheduler asha", "scheduler hyperband", "scheduler median", "fifo", "random", "tpe", "qmc", "nsgaii",
    "saves third", "saves better", "saves never", "saves third, fifo", "saves better, fifo",
    "trial raises", "trial nan", "trial infinity", "trial loses", "trial early", "trial done",
    "raises, fifo, saves third", "loses, saves third, fifo", "save fails, checkpoints at each report", "load fails",
    "several reports, fifo", "counts from 0", "counts from 0, loses, fifo", "counts from 0, baseline, confirmation",
    "counts nothing", "median, counts nothing", "hyperband, counts nothing", "counts in every second report",
    "counts in every second report, fifo", "counts from 1 again", "counts from 1 again, loses, fifo",
    "grid", "grid, twice", "grid, a point of it tried", "single values", "mixed space", "brute force",
    "hyperparameters of our names", "branches", "branches, baseline of a branch, confirmation", "branches, pbt",
    "branches, tpe, fifo, saves third",
    "Ray's Optuna", "Ray's ASHA", "Ray's median", "Ray's pbt", "PB2", "PB2, loses", "BOHB", "BOHB, raises", "stop",
    "more seeds", "more seeds, raises", "more seeds, saves third, fifo", "baseline, more seeds", "baseline alone",
    "baseline, confirmation", "baseline, confirmation, raises", "baseline, confirmation, nan",
    "baseline, confirmation, loses", "baseline, confirmation, early", "baseline, confirmation, saves third",
    "baseline, confirmation, several reports", "baseline, confirmation, added trials",
    "added trials", "added trials, more seeds", "added trials, time budget of 30.0 s, target, more seeds",
    "target", "patience", "time budget of 2.0 s", "time budget of 5.0 s, target, more seeds",
    "checkpoints at each report", "one device", "many devices",
    "growth", "growth, fifo, saves third", "growth, baseline, confirmation", "growth, loses, fifo", "growth, early",
    "growth, added trials", "two workers", "several trials a device", "one trial at a time",
    "pbt", "pbt, saves third", "pbt, saves better", "pbt, counts nothing", "pbt, four devices", "pbt, raises",
    "pbt, nan", "pbt, infinity", "pbt, counts from 0",
    "two objectives", "two objectives, saves third, fifo", "two objectives, nan", "two objectives, raises, fifo",
    "two objectives, grid", "two directions, baseline, confirmation", "two directions, loses, fifo",
    "two directions, several reports", "max, two directions of a maximum, fifo",
    "max", "max, saves third", "max, saves better, fifo", "max of val_acc, baseline, confirmation", "max, raises, fifo",
    "max, pbt", "max, patience", "max, target of a maximum", "max, growth",
    "odd name", "odd name, baseline, confirmation", "reports other bests",
    "steps", "steps, saves third", "steps, baseline, confirmation", "steps, pbt",
    "tried", "stopped by hand", "more trials by hand", "ended by hand", "torn logs",
    "torn logs, raises, saves third, fifo", "killed in save", "killed in train", "killed in restore", "killed in reset",
)  # fmt: skip
"""The kinds; a name is the list of its traits."""


def kind_of(name: str) -> Kind:
    """Return the kind that has these traits.

    Raises:
        KeyError: There is no such trait.
    """
    fields: dict[str, Any] = {"curve": {}, "options": {}}
    for trait in name.split(", "):
        for field_name, value in TRAITS[re.sub("^(scheduler|trial) ", "", trait)].items():
            adds = field_name in ("curve", "options")
            fields[field_name] = {**fields[field_name], **value} if adds else value
    return Kind(**{**fields, "curve": Curve(**fields["curve"])})


class CheckedSweep:
    """A sweep of a kind, with kills, and what its places say in the end."""

    def __init__(self, name: str, kind: Kind, storage: Path, uri: str, *, seed: int = 0, kills: int = 0) -> None:
        self.kind, self.storage, self.uri = kind, storage, uri
        self.name = as_name(f"{name} {seed} {kills}")
        self.folder = storage / self.name
        self._seed, self._kills = seed, kills
        self._logged: dict[str, dict[int, dict[str, Any]]] = {}
        self._printed = io.StringIO()
        self._wrong: list[str] = []
        """What was wrong while the sweep was not running."""
        self.truth = Truth({}, {})

    def run(self) -> list[str]:
        """Run it to its end, and return the disagreements."""
        here, chance = Path.cwd(), random.Random(self.name)
        # Population-based training asks Ray for a checkpoint that is being saved: it would join whatever Ray runs here.
        settings = {"RAY_CHDIR_TO_TRIAL_DIR": "0", "RAY_ENABLE_AUTO_CONNECT": "0"}
        with mock.patch.dict(os.environ, settings), redirect_stdout(self._printed):
            kills = [chance.randrange(4, 40) for _ in range(self._kills)]
            for start, kill_at in enumerate([*kills, None]):
                state = self._part(resumes=start > 0, kill_at=kill_at)
                if state is not None:
                    break
            if self.kind.add_trials and state is not None:
                state = self._part(resumes=True, kill_at=None, add_trials=self.kind.add_trials)
        os.chdir(here)
        assert state is not None, "the last part is not killed"
        deliver(self.uri, Outbox(self.folder))
        searched = [trial for trial in state.trials.values() if not trial.confirms]
        ranges = read_sweep_file(self.folder).space
        self.truth = Truth(
            reports={
                trial.number: {
                    number: report
                    for number, report in self._logged.get(trial.name, {}).items()
                    if self.kind.clones or number <= trial.reports
                }
                for trial in searched
            },
            clones=self.kind.clones,
            objectives=state.objectives,
            unit=state.budget.unit,
            results={
                number_in_name(Path(result.path).name) or 0: (
                    (result.metrics or {}).get(state.objective.name),
                    result.config or {},
                )
                for result in self._grid
            },
            configs={
                trial.number: {name: value for name, value in trial.began_with.items() if name in ranges}
                for trial in searched
            },
            confirmed=self._confirmed(state),
            baseline=1 if self.kind.baseline else 0,
        )
        killed, complete = self._kills > 0, self.kind.complete
        found = disagreements(self.folder, self.uri, self.printed, self.truth, killed=killed, complete=complete)
        return self._wrong + found

    @property
    def printed(self) -> str:
        """What it has printed."""
        return self._printed.getvalue()

    def _confirmed(self, state: SweepState) -> dict[int, list[float]]:
        """Return the test losses at the best reports of the trials that confirm, which did not fail."""
        scores: dict[int, list[float]] = {}
        for trial in state.trials.values():
            objective = state.objective
            logged = self._logged.get(trial.name, {}).values()
            reports = [report for report in logged if math.isfinite(report[objective.name])]
            if trial.confirms and trial.has_ended and trial.status != "failed" and reports:
                best = max(reports, key=lambda report: objective.score(report[objective.name]))
                scores.setdefault(trial.confirms, []).append(best[test_metric(objective.name)])
        return scores

    def _part(self, *, resumes: bool, kill_at: int | None, add_trials: int = 0) -> SweepState | None:
        """Run the sweep until it ends or is killed; return its state, None if it was killed."""
        kept = self.storage / f".kept-{self.name}"
        keep, kind = partial(keep_files, self.folder, kept), self.kind
        groups = RealActors(kind.devices, kind.curve, keep, kill_at, kill_while=kind.kill_while)
        groups.logged, groups.clones = self._logged, kind.clones
        patience = mock.patch.object(simulated_groups, "HANGS_AFTER", 1000)  # 10 s of real time
        resolve = mock.patch.object(_FutureTrainingResult, "resolve", lambda saving, block=True: saving.future())
        with without_ray(self.storage, groups, CPU), patience, resolve:
            tuner = self._tuner(resumes=resumes, add_trials=add_trials)
            if not resumes:
                groups.asked = {at: partial(tuner.run.steering.ask, request) for at, request in kind.asked.items()}
            try:
                self._grid = tuner.fit()
            except KilledError:
                shutil.rmtree(self.folder)
                shutil.rmtree(self.storage / "session")  # Ray's next session is another one
                kept.rename(self.folder)
                if kind.torn:
                    tear(self.folder / STATE_LOG, self.folder / OUTBOX_FILE)
                objective = tuner.plan.experiment.objective
                found = shown_when_killed(self.folder, objective, self._logged, clones=kind.clones)
                self._wrong += (f"after a kill, {text}" for text in found)
                return None
        return tuner.run.state

    def _tuner(self, *, resumes: bool, add_trials: int) -> SweepTuner:
        curve = self.kind.curve
        experiment = Experiment(
            name="agree",
            train_loop=_never,
            space=self.kind.space,
            metric=curve.metric,
            mode="max" if curve.maximizes else "min",
            budget=Budget(steps=6 * curve.steps, eval_every=curve.steps) if curve.steps else Budget(epochs=6),
            baseline=self.kind.baseline,
        )
        options: dict[str, Any] = {"storage": self.storage, "tracking_uri": self.uri}
        if resumes:
            options |= {"resume": self.name, "add_trials": add_trials}
        else:
            options |= {"name": self.name, "num_samples": 8, "seed": self._seed, "device": "cpu", "confirm": 0}
            options["same_errors"] = 0  # a third of the trials fail alike: with some seeds five in a row
            options |= self.kind.options
        tuner = build_tuner(experiment, **{**options, **self.kind.objects()})
        assert isinstance(tuner, SweepTuner)
        return tuner


def tear(*logs: Path) -> None:
    """Cut off half of the last line of each file, as the death of a machine does in the middle of a write. A file has
    its first line at once, under another name."""
    for log in logs:
        if log.is_file() and len(lines := log.read_bytes().splitlines(keepends=True)) > 1:
            log.write_bytes(b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])


def _never(config: dict[str, Any]) -> None:
    raise AssertionError("the groups train their own loop")
