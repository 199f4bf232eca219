"""A tuner that trains nothing: what it does not do, and what it says of a sweep that is over, or runs elsewhere."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune
from ray.air.execution._internal import RayActorManager
from ray.tune.experiment import Trial

from gaudi_tune import SweepError, SweepOptions, build_tuner
from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.result import exit_status
from gaudi_tune.sweep.record.events import CTRL_C, Ending, Outcome, Reported, SweepEnding, TrialBegan, TrialEnded
from gaudi_tune.sweep.record.lock import SweepLock
from tests.helpers.loops import quadratic
from tests.helpers.quadratic import QUADRATIC


def test_building_a_tuner_writes_starts_and_patches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = ray.is_initialized(), Trial.handle_error, RayActorManager._actor_task_failed
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tuner = build_tuner(QUADRATIC, storage=tmp_path / "results", name="x", device="cpu", tracking_uri=uri)
    assert isinstance(tuner, tune.Tuner)
    assert list(tmp_path.iterdir()) == []
    assert (ray.is_initialized(), Trial.handle_error, RayActorManager._actor_task_failed) == before
    with pytest.raises(RuntimeError, match="before fit"):
        tuner.get_results()


def test_a_pickled_sweep_is_the_same_object_here_and_refused_elsewhere() -> None:
    kept = KeptInProcess()
    pickled = pickle.dumps(kept)
    assert pickle.loads(pickled) is kept
    del kept
    with pytest.raises(SweepError, match=r"resumed with build_tuner\(..., resume=NAME\)"):
        pickle.loads(pickled)


def test_a_sweep_is_not_resumed_in_tune_s_own_way(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"resumed with build_tuner\(..., resume=NAME\), or --resume NAME, not with"):
        SweepTuner.restore(str(tmp_path), trainable=quadratic)


def test_a_sweep_that_runs_is_not_read_to_go_on(ray_here: None, storage: Path) -> None:
    plan = make_plan(QUADRATIC, SweepOptions(storage=storage, name="x", device="cpu"))
    plan = replace(plan, options=replace(plan.options, resume="x"))
    plan.folder.mkdir(parents=True)
    lock, tuner = SweepLock(plan.folder), SweepTuner(plan, trackers=[])
    with pytest.raises(SweepError, match="x: this sweep is running"):
        tuner.fit()
    lock.release()
    with pytest.raises(SweepError, match="--resume x: its state cannot be read in full"):
        tuner.fit()


def ended(storage: Path, *trials: tuple[list[float], Outcome], ending: Ending | None = None) -> SweepTuner:
    """A sweep whose trials have all ended so, each with its reports."""
    options = SweepOptions(storage=storage, name="x", device="cpu", num_samples=len(trials), confirm=0)
    tuner = SweepTuner(make_plan(QUADRATIC, options), trackers=[])
    tuner.plan.folder.mkdir(parents=True)
    state, config = tuner.run.state, {"x": 0.5}
    for number, (scores, outcome) in enumerate(trials, start=1):
        state.apply(TrialBegan(trial=number, trial_id=str(number), config=config))
        for step, score in enumerate(scores, start=1):
            state.apply(Reported(trial=number, step=step, point=(score,), metrics={}, config=config))
        failure = Failure(FailureKind.LOOP_ERROR, "KeyError: 'lr'") if outcome == "failed" else None
        reason = failure.text if failure else ""
        state.apply(TrialEnded(trial=number, outcome=outcome, reason=reason, failure=failure))
    if ending is not None:
        state.apply(SweepEnding(ending=ending))
    tuner.run.conclusion.write()
    return tuner


ALIKE = Ending("2 trials in a row failed alike: KeyError: 'lr'", status=1)


@pytest.mark.parametrize(
    ("trials", "ending", "status", "says"),
    [
        ([([0.5], "finished"), ([], "failed")], None, 0, ""),
        ([([0.5], "finished"), ([0.4], "stopped early")], Ending("the target is reached", status=0), 0, ""),
        ([([0.5], "finished"), ([0.4], "finished")], Ending("interrupted (Ctrl-C)", status=CTRL_C), 0, ""),
        (
            [([], "failed"), ([], "failed")],
            None,
            1,
            r"error: no trial reported a finite score \(trial 1: KeyError: 'lr'\)",
        ),
        (
            [([0.5], "failed"), ([], "failed")],
            None,
            1,
            r"error: all 2 trials failed \(trial 1: KeyError: 'lr'\); see .*",
        ),
        ([([0.5], "failed"), ([0.4], "failed")], ALIKE, 1, r"error: all 2 trials failed"),
        ([([0.5], "finished"), ([0.4], "failed"), ([], "failed")], ALIKE, 1, "error: 2 trials in a row failed alike"),
    ],
)
def test_a_sweep_whose_trials_have_all_ended_may_have_failed(
    trials: Any, ending: Ending | None, status: int, says: str, storage: Path
) -> None:
    tuner = ended(storage, *trials, ending=ending)
    assert tuner.run.summary is not None and exit_status(tuner.run.summary) == status
    said = tuner.run.conclusion.ending_lines()
    assert len(said) == bool(says)
    assert all(re.match(says, line) for line in said)
