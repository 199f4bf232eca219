"""Tune's state as a killed sweep leaves it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ray import tune
from ray.train._internal.session import _TrainingResult
from ray.train._internal.storage import StorageContext
from ray.tune import CheckpointConfig
from ray.tune.experiment import Trial

from experiments.sweep.on_ray.tune_files import settle


def saved(folder: Path) -> _TrainingResult:
    folder.mkdir()
    return _TrainingResult(tune.Checkpoint.from_directory(folder), {"score": 0.5})


@pytest.mark.parametrize("resumed", [True, False])
def test_a_resumed_trial_saves_where_the_state_knows_a_checkpoint_that_is_gone(
    resumed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had saved another, and the kill came before the state was kept; without us Tune fails to delete the first."""
    monkeypatch.setattr("ray.train._internal.storage._get_ray_train_session_dir", lambda: str(tmp_path / "session"))
    config = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score")
    storage = StorageContext(str(tmp_path), experiment_dir_name="sweep")
    trial = Trial("any", stub=True, checkpoint_config=config, storage=storage)
    trial.on_checkpoint(saved(tmp_path / "checkpoint_000000"))
    shutil.rmtree(tmp_path / "checkpoint_000000")
    if resumed:
        settle([trial], tmp_path)
        trial.on_checkpoint(saved(tmp_path / "checkpoint_000001"))
        assert Path(trial.checkpoint.path).name == "checkpoint_000001"
    else:
        with pytest.raises(FileNotFoundError):
            trial.on_checkpoint(saved(tmp_path / "checkpoint_000001"))
