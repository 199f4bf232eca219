"""build_tuner() without fit(): it decides and checks, and does nothing."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import ray
from ray import tune
from ray.air.execution._internal import RayActorManager
from ray.tune.experiment import Trial

from experiments import SweepError, build_tuner
from experiments.sweep.decide.kept_in_process import KeptInProcess
from tests.experiments.sweep.quadratic import QUADRATIC


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


def test_what_tune_pickles_of_a_sweep_stays_the_same_object_in_this_process_and_is_refused_in_another() -> None:
    kept = KeptInProcess()
    pickled = pickle.dumps(kept)
    assert pickle.loads(pickled) is kept
    del kept
    with pytest.raises(SweepError, match="resumed with --resume NAME"):
        pickle.loads(pickled)
