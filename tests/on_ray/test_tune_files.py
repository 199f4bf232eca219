"""Tune's state as a killed sweep leaves it."""

from __future__ import annotations

import json
import math
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray import tune
from ray.train._internal.session import _TrainingResult
from ray.train._internal.storage import StorageContext
from ray.tune import CheckpointConfig
from ray.tune.experiment import Trial

from gaudi_tune.on_ray.trials import new_folder_of
from gaudi_tune.on_ray.tune_files import (
    CONTROLLER,
    PROPOSALS,
    PUT_BACK,
    SEARCHER,
    KeptState,
    finish_restore,
    forget_deleted_checkpoints,
    put_back,
)
from gaudi_tune.private import ray_tune
from gaudi_tune.sweep.record.state_log import TRIALS
from tests.tools.agree.kinds import CheckedSweep, kind_of


def saved(folder: Path) -> _TrainingResult:
    folder.mkdir()
    return _TrainingResult(tune.Checkpoint.from_directory(folder), {"score": 0.5})


@pytest.mark.parametrize("resumed", [True, False])
def test_a_resumed_trial_saves_where_the_state_knows_a_checkpoint_that_is_gone(
    resumed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had saved another, and the kill came before the state was kept; without us Tune fails to delete the first."""
    monkeypatch.setattr("ray.train._internal.storage._get_ray_train_session_dir", lambda: str(tmp_path / "session"))
    monkeypatch.setattr("ray.train._internal.checkpoint_manager._delete_fs_path", ray_tune._delete_fs_path)
    config = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score")
    storage = StorageContext(str(tmp_path), experiment_dir_name="sweep")
    trial = Trial("any", stub=True, checkpoint_config=config, storage=storage)
    trial.on_checkpoint(saved(tmp_path / "checkpoint_000000"))
    shutil.rmtree(tmp_path / "checkpoint_000000")
    if resumed:
        finish_restore([trial], tmp_path)
        trial.on_checkpoint(saved(tmp_path / "checkpoint_000001"))
        assert Path(trial.checkpoint.path).name == "checkpoint_000001"
    else:
        with pytest.raises(FileNotFoundError):
            trial.on_checkpoint(saved(tmp_path / "checkpoint_000001"))


def test_tune_forgets_a_checkpoint_whose_deletion_has_only_begun(tmp_path: Path) -> None:
    storage = StorageContext(str(tmp_path), experiment_dir_name="sweep")
    trial = Trial("any", stub=True, checkpoint_config=CheckpointConfig(), storage=storage)
    for number in range(2):
        trial.on_checkpoint(saved(tmp_path / f"checkpoint_00000{number}"))
    forget_deleted_checkpoints(trial, {tmp_path / "checkpoint_000000"})
    assert [Path(one.checkpoint.path).name for one in ray_tune.checkpoints_of(trial)] == ["checkpoint_000001"]


def test_a_resume_moves_only_what_is_in_the_way_of_its_trials_and_removes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, elsewhere = tmp_path / "sweep", tmp_path / "elsewhere"
    known, later = ["trial-001", "trial-002"], ["trial-003", "trial-1000"]
    others = [
        "trial-notes",
        "trial-003-keep",
        "trial-0004",
        "trial-3",
        "trial-000",
        "trial--05",
        "trial-\u0663\u0663\u0663",
    ]
    for name in [*known, *later, *others]:
        (folder / name).mkdir(parents=True)
        (folder / name / "result.json").write_text(name)
    elsewhere.mkdir()
    (elsewhere / "data").write_text("of a person")
    (folder / "trial-links").symlink_to(elsewhere)
    (folder / "trial-005").symlink_to(elsewhere)
    (folder / "trial-006").write_text("a file")

    spec = {"storage": SimpleNamespace()}
    proposals = pickle.dumps({"experiment": SimpleNamespace(spec=spec)})
    state = KeptState({CONTROLLER: "{}", PROPOSALS: proposals, SEARCHER: b"{}", TRIALS: {}}, [], [1, 2])
    put_back(state, folder, 0)

    assert {path.name for path in folder.glob("trial-*")} == {*known, *others, "trial-links"}
    aside = folder / "set-aside-1"
    assert {path.name for path in aside.iterdir()} == {*later, "trial-005", "trial-006"}
    assert all((folder / name / "result.json").read_text() == name for name in [*known, *others])
    assert all((aside / name / "result.json").read_text() == name for name in later)
    assert (aside / "trial-005" / "data").read_text() == (elsewhere / "data").read_text() == "of a person"
    assert f"trial-003, trial-005, trial-006, trial-1000: moved to {aside}" in caplog.text

    caplog.clear()
    put_back(state, folder, 0)
    assert not caplog.text and not (folder / "set-aside-2").exists()
    (folder / "trial-003").mkdir()
    put_back(state, folder, 0)
    assert (folder / "set-aside-2" / "trial-003").is_dir()


def test_a_resumed_trial_is_not_paused_or_ended_by_what_was_decided_before_a_kill(tmp_path: Path) -> None:
    """Tune would pause it after any later checkpoint, and the sweep would wait for it for ever."""
    runner = {"_iteration": 7, "_cached_trial_decisions": {"a": "PAUSE"}, "_queued_trial_decisions": {"b": "STOP"}}
    proposals = pickle.dumps({"experiment": SimpleNamespace(spec={"storage": SimpleNamespace()})})
    parts = {CONTROLLER: json.dumps({"runner_data": runner}), PROPOSALS: proposals, SEARCHER: b"{}", TRIALS: {}}
    put_back(KeptState(parts, [], []), tmp_path, 0)
    assert json.loads((tmp_path / CONTROLLER.format(PUT_BACK)).read_text())["runner_data"] == {"_iteration": 7}


def test_a_trial_has_a_folder_of_its_name_where_a_killed_sweep_of_the_same_ray_left_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.train._internal.storage._get_ray_train_session_dir", lambda: str(tmp_path / "session"))
    storage = StorageContext(str(tmp_path), experiment_dir_name="sweep")
    left = Path(storage.experiment_driver_staging_path, "trial-003")
    left.mkdir(parents=True)
    (left / "result.json").write_text("{}")
    trial = Trial("any", stub=True, experiment_tag="3_x=1", storage=storage, trial_dirname_creator=new_folder_of)
    trial.init_local_path()
    assert trial.local_path == str(left)
    assert list(left.iterdir()) == []


def test_reports_after_the_state_are_cut_off_since_the_sweep_may_go_on_otherwise(tmp_path: Path) -> None:
    def report(iteration: int, timestamp: int) -> str:
        return json.dumps({"training_iteration": iteration, "timestamp": timestamp, "score": math.nan}) + "\n"

    proposals = pickle.dumps({"experiment": SimpleNamespace(spec={"storage": SimpleNamespace()})})
    # Trial 1 has reported twice more, the second time in part; 2 has trained an epoch twice; 3 lacks its last.
    lines = {
        1: report(1, 10) + report(2, 11) + report(3, 12) + report(4, 13)[:9],
        2: report(1, 10) + report(2, 11) + report(2, 20) + report(3, 21),
        3: report(1, 10),
    }
    last = {1: (2, 11), 2: (2, 20), 3: (4, 30)}
    trials = {}
    for number, text in lines.items():
        (tmp_path / f"trial-{number:03d}").mkdir()
        (tmp_path / f"trial-{number:03d}" / "result.json").write_text(text)
        trials[f"id{number}"] = (
            json.dumps({"experiment_tag": str(number)}),
            f'{{"last_result": {report(*last[number])}}}',
        )
    parts = {CONTROLLER: "{}", PROPOSALS: proposals, SEARCHER: b"{}", TRIALS: trials}
    put_back(KeptState(parts, [json.loads(trial) for trial, _ in trials.values()], [1, 2, 3]), tmp_path, 0)
    kept = {number: (tmp_path / f"trial-{number:03d}" / "result.json").read_text() for number in lines}
    assert kept == {1: report(1, 10) + report(2, 11), 2: report(1, 10) + report(2, 11) + report(2, 20), 3: lines[3]}


def test_trials_are_added_in_the_process_of_a_sweep_that_is_over(storage: Path, tracking_store: str) -> None:
    """Tune reads what is put back where it wrote its own files, which are still there."""
    sweep = CheckedSweep("more", kind_of("added trials"), storage, tracking_store)
    assert sweep.run() == []
    (state,) = sweep.folder.glob(CONTROLLER.format("*"))
    assert len(json.loads(state.read_text())["trial_data"]) == 8 + 3
