"""What this project uses of the state that Ray Tune keeps, and does not promise to keep as it is."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.train._internal.storage import StorageContext
from ray.tune.callback import CallbackList
from ray.tune.execution.experiment_state import _ExperimentCheckpointManager
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

from gaudi_tune.private import tune_state


class Keeper(tune_state.StateKeeper):
    """Keeps the state of a sweep, as far as Tune knows."""


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A controller of two trials."""
    monkeypatch.setattr(TuneController, "__getstate__", lambda self: {"_iteration": 7})
    made: Any = object.__new__(TuneController)
    made._search_alg = "the searcher"
    made._trials_to_cache = {Trial("any", stub=True, trial_id=name) for name in ("one", "other")}
    made._trial_metadata = {}
    return made


def test_the_state_has_all_trials_and_those_that_have_not_changed_are_the_same_objects(controller: Any) -> None:
    trials = sorted(controller._trials_to_cache, key=lambda trial: trial.trial_id)
    states, rest, search_alg = tune_state.state_in(controller, trials)
    first = dict(states)
    assert (json.loads(rest)["runner_data"], search_alg) == ({"_iteration": 7}, "the searcher")
    trials[0].set_status(Trial.PAUSED)
    controller._mark_trial_to_checkpoint(trials[0])
    second, _, _ = tune_state.state_in(controller, trials)
    assert first.keys() == second.keys() == {"one", "other"}
    assert first["one"] != second["one"]
    assert first["other"] is second["other"]


@pytest.mark.parametrize("has_keeper", [True, False])
def test_tune_writes_the_state_of_a_sweep_with_a_keeper_at_its_end_alone_and_copies_its_files(
    has_keeper: bool, controller: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ExperimentCheckpointManager, "sync_up_experiment_state", tune_state._write_state)
    monkeypatch.setattr(StorageContext, "experiment_driver_staging_path", str(tmp_path / "staging"))
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "result.json").write_text("{}")
    written = list[float]()
    monkeypatch.setattr(TuneController, "save_to_dir", lambda self: written.append(time.monotonic()))
    controller._callbacks = CallbackList([tune.Callback(), *([Keeper()] if has_keeper else [])])
    manager = _ExperimentCheckpointManager(
        storage=StorageContext(str(tmp_path), "sweep"), checkpoint_period=0, sync_every_n_trial_checkpoints=1
    )
    controller._checkpoint_manager = manager
    tune_state.write_state_at_end()
    (trial, *_) = controller._trials_to_cache
    for _ in range(2):
        manager.on_trial_checkpoint(trial)
        controller.checkpoint()
    if not has_keeper:
        assert len(written) == 2  # what Ray does: at once, for each checkpoint
        return
    assert not written
    until = time.monotonic() + 60
    while not (copied := (tmp_path / "sweep" / "result.json").exists()) and time.monotonic() < until:
        time.sleep(0.01)
    assert copied
    controller.checkpoint(force=True, wait=True)  # as at the end of a sweep
    assert len(written) == 1


def test_a_file_that_was_copied_by_half_is_not_taken_for_copied(tmp_path: Path) -> None:
    """Tune only logs that it could not copy, on a full disk for example: its own files must stay then."""
    staged, copied = tmp_path / "staged" / "trial" / "result.json", tmp_path / "folder" / "trial" / "result.json"
    for file in (staged, copied):
        file.parent.mkdir(parents=True)
        file.write_text("reports")
    assert tune_state._is_copied(tmp_path / "staged", tmp_path / "folder")
    copied.write_text("repo")
    assert not tune_state._is_copied(tmp_path / "staged", tmp_path / "folder")
    copied.unlink()
    assert not tune_state._is_copied(tmp_path / "staged", tmp_path / "folder")
