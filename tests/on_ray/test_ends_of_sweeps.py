"""Sweeps that end in good order after an error outside their trials."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import optuna
import pytest
from optuna.trial import TrialState
from ray import tune
from ray.util import placement_group_table

from gaudi_tune import SweepError, SweepOptions
from gaudi_tune.on_ray.ray_watch import LOOK_EVERY_S
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.trackers.tracker import TRACKERS
from tests.helpers.json_lines import JsonLinesTracker
from tests.helpers.quadratic import QUADRATIC
from tests.helpers.stored_study import stored_trials
from tests.tools.agree.kinds import CheckedSweep, Kind


def test_a_group_that_cannot_start_fails_its_trial_with_the_reason_and_books_nothing(
    ray_here: None, tmp_path: Path
) -> None:
    plan = make_plan(QUADRATIC, SweepOptions(storage=tmp_path, name="no-start", baseline_only=True))
    wrong = replace(plan.devices, type=replace(plan.devices.type, backend="nonsense"))
    tuner = SweepTuner(replace(plan, devices=wrong))
    results = tuner.fit()
    with pytest.raises(
        SweepError, match=r"has run its sweep; .* with another: build_tuner\(.*resume='no-start'.*add_trials=N"
    ):
        tuner.fit()
    assert len(results.errors) == 1
    assert "nonsense" in str(results.errors[0])
    summary = json.loads(plan.summary_file.read_text())
    assert (summary["counts"], summary["complete"], summary["best"]) == ({"failed": 1}, True, None)
    booked = [group for group in placement_group_table().values() if group["state"] != "REMOVED"]
    assert booked == []


class Raising(tune.Callback):
    """Fails when the sweep has begun, where Tune tells nobody that it is over."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def setup(self, **info: Any) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "why", "status"),
    [
        (ValueError("nothing of a trial"), "an error outside the trials: ValueError('nothing of a trial')", 1),
        (KeyboardInterrupt(), "interrupted (Ctrl-C)", 130),
    ],
    ids=["error", "a second Ctrl-C"],
)
def test_an_error_of_tune_ends_the_sweep_in_good_order(
    error: BaseException, why: str, status: int, ray_here: None, tmp_path: Path
) -> None:
    name = f"raises-{status}"
    plan = make_plan(QUADRATIC, SweepOptions(storage=tmp_path, name=name, device="cpu", num_samples=2))
    lines, before = JsonLinesTracker(tmp_path / "raises.jsonl"), signal.getsignal(signal.SIGTERM)
    tuner = SweepTuner(plan, callbacks=[Raising(error)], trackers=[TRACKERS["mlflow"](plan), lines])
    with pytest.raises(type(error), match=str(error)):
        tuner.fit()
    assert signal.getsignal(signal.SIGTERM) == before
    summary = json.loads(plan.summary_file.read_text())
    assert (summary["ended_early"]["why"], summary["ended_early"]["status"]) == (why, status)
    assert lines.lines()[-1]["event"] == "closed"
    run = next(
        r for r in mlflow.search_runs(experiment_names=["quadratic"], output_format="list") if r.info.run_name == name
    )
    assert run.info.status in ("FAILED", "KILLED")
    watch = [thread for thread in threading.enumerate() if thread.name == "ray-watch"]
    for thread in watch:
        thread.join(LOOK_EVERY_S + 60)
    assert not any(thread.is_alive() for thread in watch)


class Breaking(optuna.samplers.RandomSampler):
    """Fails once three trials have ended, which the plan does not try."""

    def sample_independent(self, study: optuna.Study, *about: Any) -> Any:
        if len(study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])) >= 3:
            raise KeyError("momentum")
        return super().sample_independent(study, *about)


def test_a_sampler_that_fails_ends_the_sweep_in_good_order(storage: Path, tracking_store: str) -> None:
    kind = Kind(options={"scheduler": "fifo"}, objects=lambda: {"sampler": Breaking()}, devices=1)
    sweep = CheckedSweep("breaks", kind, storage, tracking_store)
    why = r"sampler=Breaking failed: KeyError: 'momentum' \(.*test_ends_of_sweeps.py, line \d+\); correct it and resume"
    with pytest.raises(SweepError, match=why):
        sweep.run()
    summary = json.loads((sweep.folder / "summary.json").read_text())
    assert summary["ended_early"]["status"] == 1
    assert summary["counts"] == {"finished": 3}
    states = [trial.state for trial in stored_trials(sweep.folder)]
    assert states == [TrialState.COMPLETE] * 3, "a resumed sweep makes the fourth proposal"
