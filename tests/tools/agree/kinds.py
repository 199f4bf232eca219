"""The kinds of sweeps that are compared, and how one is run."""

from __future__ import annotations

import io
import math
import os
import random
import shutil
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
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
from tests.tools.agree.loops import Curve
from tests.tools.agree.places import disagreements, shown_when_killed
from tests.tools.agree.truth import Truth

SPACE: dict[str, Any] = {"x": tune.uniform(-1.0, 1.0)}
GRID: dict[str, Any] = {"x": tune.grid_search([0.1 * number for number in range(8)])}


BEFORE_BASELINE: dict[str, Any] = {"options": {"confirm": 2, "seeds": 3, "most_seeds": 3}, "baseline": {"x": 0.25}}


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
    """Makes objects of Ray's anew for each start."""
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


KINDS: dict[str, Kind] = {
    "default": Kind(),
    **{f"scheduler {name}": Kind(options={"scheduler": name}) for name in ("asha", "hyperband", "median", "fifo")},
    **{f"search {name}": Kind(options={"search": name}) for name in ("random", "tpe", "qmc", "nsgaii")},
    **{f"saves {how}": Kind(Curve(saves=how)) for how in ("third", "better", "never")},
    "saves third, fifo": Kind(Curve(saves="third"), {"scheduler": "fifo"}),
    "saves better, fifo": Kind(Curve(saves="better"), {"scheduler": "fifo"}),
    **{f"trial {how}": Kind(Curve(mishap=how)) for how in ("raises", "nan", "infinity", "loses", "early", "done")},
    "raises, fifo, saves third": Kind(Curve(saves="third", mishap="raises"), {"scheduler": "fifo"}),
    "loses, saves third": Kind(Curve(saves="third", mishap="loses"), {"scheduler": "fifo"}),
    "several reports an epoch": Kind(Curve(each=2), {"scheduler": "fifo"}),
    "counts from 0": Kind(Curve(from_0=True)),
    "counts nothing": Kind(Curve(says="none")),
    "median, counts nothing": Kind(Curve(says="none"), {"scheduler": "median"}),
    "hyperband, counts nothing": Kind(Curve(says="none"), {"scheduler": "hyperband"}),
    "counts in every second report": Kind(Curve(each=2, says="second"), {"scheduler": "fifo"}),
    "counts in every second report, default": Kind(Curve(each=2, says="second")),
    "counts anew": Kind(Curve(forgets=True), {"same_errors": 0}),
    "counts anew, loses": Kind(Curve(forgets=True, mishap="loses"), {"scheduler": "fifo", "same_errors": 0}),
    "grid": Kind(space=GRID, objects=lambda: {"search_alg": BasicVariantGenerator()}, options={"num_samples": 1}),
    "Ray's Optuna": Kind(objects=lambda: {"search_alg": OptunaSearch(seed=1)}),
    "Ray's ASHA": Kind(objects=lambda: {"scheduler": ASHAScheduler(max_t=6, grace_period=1)}),
    "Ray's median": Kind(objects=lambda: {"scheduler": MedianStoppingRule(grace_period=1)}),
    "single values": Kind(space={**SPACE, "width": tune.choice([2])}),
    "mixed space": Kind(space={**SPACE, "width": tune.randint(1, 5), "kind": tune.choice(["a", "b"])}),
    "confirmation": Kind(options={"confirm": 1, "seeds": 2}),
    "target": Kind(options={"target": 0.2}, complete=False),
    "patience": Kind(options={"patience": 3}, complete=False),
    "checkpoints at each report": Kind(options={"checkpoint_minutes": 0}),
    "growth": Kind(options={"grow": "on"}, devices=4),
    "growth, fifo, saves third": Kind(Curve(saves="third"), {"grow": "on", "scheduler": "fifo"}, devices=4),
    "two workers": Kind(options={"workers_per_trial": 2}, devices=4),
    "brute force": Kind(space={**SPACE, "x": tune.quniform(-1.0, 1.0, 0.25)}, options={"search": "BruteForceSampler"}),
    "one trial at a time": Kind(options={"max_concurrent_trials": 1}),
    "stop": Kind(objects=lambda: {"stop": {"training_iteration": 3}}),
    "confirmation, raises": Kind(Curve(mishap="raises"), {"confirm": 2, "seeds": 2}),
    "confirmation, saves third": Kind(Curve(saves="third"), {"confirm": 1, "seeds": 2, "scheduler": "fifo"}),
    "Ray's grid twice": Kind(
        space=GRID, objects=lambda: {"search_alg": BasicVariantGenerator()}, options={"num_samples": 2}
    ),
    "killed while it saves": Kind(kill_while="save"),
    "one device": Kind(devices=1),
    "many devices": Kind(devices=8),
    "pbt": Kind(options={"scheduler": "pbt"}, clones=True),
    "pbt, saves third": Kind(Curve(saves="third"), {"scheduler": "pbt"}, clones=True),
    "pbt, saves better": Kind(Curve(saves="better"), {"scheduler": "pbt"}, clones=True),
    "pbt, counts nothing": Kind(Curve(says="none"), {"scheduler": "pbt"}, clones=True),
    "pbt, many devices": Kind(options={"scheduler": "pbt"}, clones=True, devices=4),
    "pbt, raises": Kind(Curve(mishap="raises"), {"scheduler": "pbt"}, clones=True),
    "Ray's pbt": Kind(
        objects=lambda: {
            "scheduler": PopulationBasedTraining(
                perturbation_interval=2, hyperparam_mutations={"x": [-0.5, 0.0, 0.5]}, time_attr="training_iteration"
            )
        },
        clones=True,
    ),
    "PB2": Kind(
        objects=lambda: {"scheduler": PB2(perturbation_interval=2, hyperparam_bounds={"x": [-1.0, 1.0]})}, clones=True
    ),
    "PB2, loses": Kind(
        Curve(mishap="loses"),
        objects=lambda: {"scheduler": PB2(perturbation_interval=2, hyperparam_bounds={"x": [-1.0, 1.0]})},
        clones=True,
    ),
    "BOHB": Kind(objects=lambda: {"scheduler": HyperBandForBOHB(max_t=6)}),
    "BOHB, raises": Kind(Curve(mishap="raises"), objects=lambda: {"scheduler": HyperBandForBOHB(max_t=6)}),
    "two objectives": Kind(options={"objectives": ("loss:min", "error:min")}),
    "two objectives, saves third, fifo": Kind(
        Curve(saves="third"), {"objectives": ("loss:min", "error:min"), "scheduler": "fifo"}
    ),
    "save fails": Kind(Curve(mishap="save fails"), {"checkpoint_minutes": 0}),
    "load fails": Kind(Curve(mishap="load fails")),
    "time budget": Kind(options={"time_budget": 2.0}, complete=False),
    "time budget, target, confirmation": Kind(
        options={"time_budget": 5.0, "target": 0.2, "confirm": 1, "seeds": 2}, complete=False
    ),
    "added trials": Kind(add_trials=3),
    "added trials, confirmation": Kind(options={"confirm": 1, "seeds": 2}, add_trials=3),
    "added trials, time budget, target, confirmation": Kind(
        options={"time_budget": 30.0, "target": 0.2, "confirm": 1, "seeds": 2}, add_trials=3, complete=False
    ),
    "several trials a device": Kind(options={"trials_per_device": 2}),
    "tried": Kind(asked={8: {"do": "try", "config": {"x": 0.125}}, 12: {"do": "try", "config": {"x": -0.75}}}),
    "tried on a grid": Kind(
        space=GRID,
        objects=lambda: {"search_alg": BasicVariantGenerator()},
        options={"num_samples": 1},
        asked={8: {"do": "try", "config": {"x": 0.30000000000000004}}, 9: {"do": "add", "trials": 2}},
    ),
    "stopped by hand": Kind(asked={9: {"do": "stop", "trial": 2}}),
    "more trials by hand": Kind(asked={5: {"do": "add", "trials": 4}}),
    "ended by hand": Kind(asked={20: {"do": "end"}}, complete=False),
    "torn logs": Kind(torn=True),
    "torn logs, raises, saves third": Kind(Curve(saves="third", mishap="raises"), {"scheduler": "fifo"}, torn=True),
    "killed while it trains": Kind(kill_while="train"),
    "killed while it continues": Kind(kill_while="restore"),
    "branches": Kind(space=branching),
    "branches, baseline, confirmation": Kind(
        space=branching, baseline={"x": 0.3, "kind": "b", "rate": 0.005}, options={"confirm": 2, "seeds": 2}
    ),
    "branches, pbt": Kind(space=branching, options={"scheduler": "pbt"}, clones=True),
    "branches, tpe, fifo": Kind(Curve(saves="third"), {"search": "tpe", "scheduler": "fifo"}, space=branching),
    "baseline, confirmation": Kind(**BEFORE_BASELINE),
    "baseline, more seeds": Kind(options={"confirm": 1}, baseline={"x": 0.25}),
    "baseline, confirmation, raises": Kind(Curve(mishap="raises"), **BEFORE_BASELINE),
    "baseline, confirmation, nan": Kind(Curve(mishap="nan"), **BEFORE_BASELINE),
    "baseline, confirmation, loses": Kind(Curve(mishap="loses"), **BEFORE_BASELINE),
    "baseline, confirmation, early": Kind(Curve(mishap="early"), **BEFORE_BASELINE),
    "baseline, confirmation, saves third": Kind(Curve(saves="third"), **BEFORE_BASELINE),
    "baseline, confirmation, several reports": Kind(Curve(each=2), **BEFORE_BASELINE),
    "baseline, confirmation, added trials": Kind(**BEFORE_BASELINE, add_trials=3),
    "baseline alone, seeds": Kind(options={"baseline_only": True, "seeds": 3}, baseline={"x": 0.25}),
    "two objectives, confirmation": Kind(
        options={"objectives": ("loss:min", "error:max"), "confirm": 2, "seeds": 2}, baseline={"x": 0.25}
    ),
    "pbt, nan": Kind(Curve(mishap="nan"), {"scheduler": "pbt"}, clones=True),
    "pbt, infinity": Kind(Curve(mishap="infinity"), {"scheduler": "pbt"}, clones=True),
    "pbt, from 0": Kind(Curve(from_0=True), {"scheduler": "pbt"}, clones=True),
    "from 0, confirmation": Kind(Curve(from_0=True), **BEFORE_BASELINE),
    "from 0, loses": Kind(Curve(from_0=True, mishap="loses"), {"scheduler": "fifo"}),
    "killed while it changes trials": Kind(kill_while="reset"),
    "max": Kind(Curve(metric="score", maximizes=True)),
    "max, saves third": Kind(Curve(metric="score", maximizes=True, saves="third")),
    "max, saves better, fifo": Kind(Curve(metric="score", maximizes=True, saves="better"), {"scheduler": "fifo"}),
    "max, baseline, confirmation": Kind(Curve(metric="val_acc", maximizes=True), **BEFORE_BASELINE),
    "max, raises, fifo": Kind(Curve(metric="score", maximizes=True, mishap="raises"), {"scheduler": "fifo"}),
    "max, pbt": Kind(Curve(metric="score", maximizes=True), {"scheduler": "pbt"}, clones=True),
    "max, two objectives": Kind(
        Curve(metric="score", maximizes=True), {"objectives": ("score:max", "error:min"), "scheduler": "fifo"}
    ),
    "max, patience": Kind(Curve(metric="score", maximizes=True), {"patience": 3}, complete=False),
    "max, target": Kind(Curve(metric="score", maximizes=True), {"target": -0.2}, complete=False),
    "max, growth": Kind(Curve(metric="score", maximizes=True), {"grow": "on"}, devices=4),
    "odd name": Kind(Curve(metric="val/loss@1 (%)")),
    "odd name, baseline, confirmation": Kind(Curve(metric="val/loss@1 (%)"), **BEFORE_BASELINE),
    "steps": Kind(Curve(steps=10)),
    "steps, saves third": Kind(Curve(steps=10, saves="third")),
    "steps, baseline, confirmation": Kind(Curve(steps=10), **BEFORE_BASELINE),
    "steps, pbt": Kind(Curve(steps=10), {"scheduler": "pbt"}, clones=True),
    "reports other bests": Kind(
        Curve(
            also={"best_loss": 9.0, "best_epoch": 9, "value": 8.0, "trial": 77, "config": "c", "at": 3, "status": "s"}
        )
    ),
    "hyperparameters of our names": Kind(
        space={**SPACE, "trial": tune.randint(1, 5), "loss": tune.uniform(1, 2), "status": tune.choice(["a", "b"])}
    ),
    "two objectives, nan": Kind(Curve(mishap="nan"), {"objectives": ("loss:min", "error:min")}),
    "two objectives, raises": Kind(
        Curve(mishap="raises"), {"objectives": ("loss:min", "error:min"), "scheduler": "fifo"}
    ),
    "two objectives, loses": Kind(
        Curve(mishap="loses"), {"objectives": ("loss:min", "error:max"), "scheduler": "fifo"}
    ),
    "two objectives, several reports": Kind(Curve(each=2), {"objectives": ("loss:min", "error:max")}),
    "two objectives, grid": Kind(
        space=GRID,
        objects=lambda: {"search_alg": BasicVariantGenerator()},
        options={"num_samples": 1, "objectives": ("loss:min", "error:min")},
    ),
    "growth, confirmation": Kind(
        **{**BEFORE_BASELINE, "options": {**BEFORE_BASELINE["options"], "grow": "on"}}, devices=4
    ),
    "growth, loses": Kind(Curve(mishap="loses"), {"grow": "on", "scheduler": "fifo"}, devices=4),
    "growth, early": Kind(Curve(mishap="early"), {"grow": "on"}, devices=4),
    "growth, added trials": Kind(options={"grow": "on"}, devices=4, add_trials=3),
}


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
