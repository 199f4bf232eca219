"""Sweeps that end in good order after an error outside their trials, and one of several objectives."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import mlflow
import optuna
import pytest
from optuna.trial import TrialState
from ray import tune
from ray.util import placement_group_table

from gaudi_tune import SweepError, SweepOptions, build_tuner
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.on_ray.watch import LOOK_EVERY_S
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.trackers.tracker import TRACKERS
from tests.helpers.groups import in_one_group
from tests.helpers.json_lines import JsonLinesTracker
from tests.helpers.quadratic import QUADRATIC
from tests.helpers.stored_study import stored_trials


def test_a_group_that_cannot_start_fails_its_trial_with_the_reason_and_books_nothing(
    ray_here: None, tmp_path: Path
) -> None:
    plan = make_plan(QUADRATIC, SweepOptions(storage=tmp_path, name="no-start", baseline_only=True))
    wrong = replace(plan.devices, type=replace(plan.devices.type, backend="nonsense"))
    results = SweepTuner(replace(plan, devices=wrong)).fit()
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


def test_a_sampler_that_fails_ends_the_sweep_in_good_order(ray_here: None, tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_samples": 4, "epochs": 1, "storage": tmp_path, "name": "breaks"}
    experiment = replace(QUADRATIC, space={"x": tune.uniform(-1, 1)})
    tuner = in_one_group(build_tuner(experiment, sampler=Breaking(), **options))
    why = r"sampler=Breaking failed: KeyError: 'momentum' \(.*test_ends_of_sweeps.py, line \d+\); correct it and resume"
    with pytest.raises(SweepError, match=why):
        tuner.fit()
    summary = json.loads((tmp_path / "breaks" / "summary.json").read_text())
    assert summary["ended_early"]["status"] == 1
    assert summary["counts"] == {"finished": 3}
    trials = stored_trials(tmp_path / "breaks")
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 3
    assert tuner.run.searcher.proposer.n_proposed == 3, "a resumed sweep makes the fourth proposal"


def test_a_sweep_of_several_objectives_ends_with_its_front(
    ray_here: None, storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objectives = ("score:max", "noise:max", "train_loss:min")
    experiment = replace(QUADRATIC, space={"x": tune.uniform(-1.0, 1.0)})
    asked: dict[str, Any] = {"num_samples": 6, "epochs": 4, "seed": 3, "confirm": 2, "seeds": 2, "name": "front"}
    tuner = in_one_group(build_tuner(experiment, objectives=objectives, storage=storage, **asked))
    tuner.fit()
    with pytest.raises(
        SweepError, match=r"has run its sweep; .* with another: build_tuner\(.*resume='front'.*add_trials=N"
    ):
        tuner.fit()
    summary = json.loads((storage / "front" / "summary.json").read_text())
    assert summary["objectives"] == ["max score", "max noise", "min train_loss"]
    points = {}
    for row in summary["front"]:
        reports = [
            json.loads(line) for line in (storage / "front" / f"trial-{row['trial']:03d}" / "result.json").open()
        ]
        best = max(reports, key=lambda report: report["score"])
        points[row["trial"]] = row["values"]
        assert row["values"] == {name: best[name] for name in ("score", "noise", "train_loss")}
        assert (Path(row["checkpoint"]) / "epoch.txt").read_text() == str(row["epoch"]) == str(best["epoch"])
    for one, other in permutations(points.values(), 2):
        assert one["score"] > other["score"] or one["noise"] > other["noise"] or one["train_loss"] < other["train_loss"]
    rivals = summary["confirmation"]["rivals"]
    assert {row["trial"] for row in rivals} <= {trial for trial in points if trial != 1} or len(points) < 3
    assert all(set(row["others"]) == {"noise", "train_loss"} for row in rivals)
    said = capsys.readouterr().out
    assert "metric  score: more is better\n        noise: more is better\n        train_loss: less is better" in said
    assert "front       trial     score" in said
    assert "on the front" in said

    found = mlflow.search_runs(experiment_names=["quadratic"], output_format="list")
    tagged = {int(run.data.tags["trial"]) for run in found if run.data.tags.get("pareto_front") == "true"}
    assert tagged == set(points)
