"""A short sweep through the API on real workers: trials that pause and are promoted.

What each scheduler decides in a whole sweep is in test_traces.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from ray import tune
from ray.air.execution._internal import RayActorManager
from ray.tune.experiment import Trial
from ray.util import placement_group_table

from gaudi_tune import build_tuner
from gaudi_tune.on_ray.sweep_run import SweepRun
from gaudi_tune.on_ray.trials import number_of
from gaudi_tune.sweep.record.events import Ending
from tests.helpers.groups import in_one_group
from tests.helpers.quadratic import QUADRATIC
from tests.helpers.stored_study import stored_trials

PLAIN = replace(QUADRATIC, space={"x": tune.uniform(-1.0, 1.0)})
"""Without mishaps."""


def test_promotion_resumes_paused_trials_on_a_warm_group_ends_the_rest_and_confirms_the_best(
    ray_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, add_actor, started = SweepRun.on_trial_start, RayActorManager.add_actor, []

    def end_in_the_confirmation(
        run: SweepRun, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        began(run, iteration, trials, trial)
        if number_of(trial) == 9 and run.plan.resumed is False:
            run.early_end.ask(Ending("for a test", 0))

    def count(manager: RayActorManager, *asked: Any, **more: Any) -> Any:
        started.append(manager)
        return add_actor(manager, *asked, **more)

    monkeypatch.setattr(SweepRun, "on_trial_start", end_in_the_confirmation)
    monkeypatch.setattr(RayActorManager, "add_actor", count)
    folder = tmp_path / "promoted"
    # No checkpoint fits: each goes as soon as it is not needed any more.
    options: dict[str, Any] = {"num_samples": 7, "epochs": 9, "seed": 1, "checkpoint_budget": "1KB"}
    options |= {"scheduler": "asha-promote", "confirm": 1, "seeds": 2}
    in_one_group(build_tuner(PLAIN, name=folder.name, storage=tmp_path, **options)).fit()
    assert not json.loads((folder / "summary.json").read_text())["complete"]
    (state,) = folder.glob("experiment_state-*.json")
    statuses = [json.loads(trial)["status"] for trial, _ in json.loads(state.read_text())["trial_data"]]
    assert "PAUSED" not in statuses, "a trial that was not promoted has ended, and is not started again"
    results = in_one_group(build_tuner(PLAIN, resume=folder.name, storage=tmp_path)).fit()
    there = {str(place) for place in folder.glob("trial-*/checkpoint_*")}
    assert {result.checkpoint.path for result in results if result.checkpoint} <= there
    assert len(there) <= 2
    best = results.get_best_result().checkpoint
    assert best is not None and (Path(best.path) / "epoch.txt").is_file()
    summary, trials = json.loads((folder / "summary.json").read_text()), stored_trials(folder)
    assert not results.errors
    assert len(started) == len(set(started)) == 2, "one trial actor, and one more after the resume"
    assert summary["complete"]
    assert sum(summary["counts"].values()) == 7 + 2 * 2
    assert summary["counts"]["finished"] >= 1 + 4
    assert summary["counts"]["stopped early"] >= 3
    confirmation = summary["confirmation"]
    (rival,) = confirmation["rivals"]
    # All seeds of this loop reach the same, and there is no test data.
    assert (rival["trial"], confirmation["metric"]) == (summary["best"]["trial"], "score")
    assert rival["scores"] == [summary["best"]["value"]] * 2
    assert rival["seeds"] == confirmation["baseline"]["seeds"]
    assert confirmation["gain"]["mean"] > 0
    for result in results:
        assert result.metrics_dataframe is not None
        epochs = list(result.metrics_dataframe["epoch"])
        assert epochs == list(range(1, len(epochs) + 1))  # resumed where it was paused, nothing twice
        assert len(epochs) in (1, 3, 9)
    assert len(trials) == 7
    assert {trial.state for trial in trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    booked = [group for group in placement_group_table().values() if group["state"] != "REMOVED"]
    assert booked == []
