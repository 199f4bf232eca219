"""What this project uses of the state that Ray Tune keeps, and does not promise to keep as it is."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
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
    """Notes what it is given, and takes its time."""

    def __init__(self) -> None:
        self.kept: list[tuple[float, dict[str, tuple[str, str]]]] = []

    def keep_state(self, trials: Mapping[str, tuple[str, str]], controller: str, search_alg: Any) -> None:
        time.sleep(0.02)
        assert json.loads(controller)["runner_data"]["_iteration"] == 7
        self.kept.append((time.monotonic(), dict(trials)))


@pytest.mark.parametrize("has_keeper", [True, False])
def test_a_keeper_is_given_the_state_within_its_share_of_time_and_tune_writes_it_at_the_end(
    has_keeper: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ExperimentCheckpointManager, "sync_up_experiment_state", tune_state._write_state)
    monkeypatch.setattr(StorageContext, "experiment_driver_staging_path", str(tmp_path / "staging"))
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "result.json").write_text("{}")
    keeper, written = Keeper(), list[float]()
    controller: Any = object.__new__(TuneController)
    monkeypatch.setattr(TuneController, "__getstate__", lambda self: {"_iteration": 7})
    monkeypatch.setattr(TuneController, "save_to_dir", lambda self: written.append(time.monotonic()))
    one, other = (Trial("any", stub=True, trial_id=name) for name in ("one", "other"))
    controller._callbacks = CallbackList([tune.Callback(), *([keeper] if has_keeper else [])])
    controller._start_time, controller._search_alg = 0.0, None
    controller._trials_to_cache, controller._trial_metadata = {one, other}, {}
    manager = _ExperimentCheckpointManager(
        storage=StorageContext(str(tmp_path), "sweep"), checkpoint_period=0, sync_every_n_trial_checkpoints=1
    )
    controller._checkpoint_manager = manager
    tune_state.give_state_to_keepers(share=0.1)

    def checkpoint_of(trial: Trial) -> None:
        controller._mark_trial_to_checkpoint(trial)
        manager.on_trial_checkpoint(trial)

    for _ in range(2):
        checkpoint_of(one)
        controller.checkpoint()
    if not has_keeper:
        assert len(written) == 2  # what Ray does: at once, for each checkpoint
        return
    until = time.monotonic() + 60
    while len(keeper.kept) < 2 and time.monotonic() < until:
        controller.checkpoint()
    (first_at, first), (second_at, second) = keeper.kept
    assert second_at - first_at > 0.2
    assert first.keys() == second.keys() == {"one", "other"}
    assert first["one"] is not second["one"]
    assert first["other"] is second["other"]
    assert not written
    while not (copied := (tmp_path / "sweep" / "result.json").exists()) and time.monotonic() < until:
        time.sleep(0.01)
    assert copied
    controller.checkpoint(force=True, wait=True)  # as at the end of a sweep
    assert (len(keeper.kept), len(written)) == (3, 1)
