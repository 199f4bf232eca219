"""The trainable in an actor, as in a sweep."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray
from ray import cloudpickle, tune
from ray.train._internal.storage import StorageContext
from ray.tune.result import TRAINING_ITERATION
from ray.tune.utils.util import flatten_dict

from gaudi_tune.base import files, names
from gaudi_tune.base.trial_place import Place
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.group.errors import LostTooOftenError, WorkerRaisedError
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.group.warm_trainable import WarmTrainable, warm_trainable
from gaudi_tune.training.checkpoint import Seal, read_seal, seal
from tests.helpers.host import Hosted
from tests.helpers.loops import any_loop

MIGRATION = "PT_HPU_GPU_MIGRATION"


def environment_of(config: Mapping[str, Any]) -> dict[str, str]:
    return {MIGRATION: "1"} if config["gpu_migration"] else {}


@pytest.fixture(scope="module")
def trainable(host: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for all tests: to start its workers takes longer than they train. In the last test it loses them for good."""
    folder = str(tmp_path_factory.mktemp("groups"))
    spec = WorkerGroupSpec(
        train_loop=any_loop, num_workers=1, device=DEVICE_TYPES["cpu"], storage=folder, hung_after_s=8
    )
    parameters = {"spec": spec, "settings": {}, "environment_of": environment_of, "retries": 1, "folder": folder}
    made = Hosted(host, warm_trainable(**parameters), trial("silent"))
    yield made
    made.stop()


@pytest.fixture
def trial_folder(trainable: Any) -> Iterator[Path]:
    """The trial's own: a checkpoint from elsewhere would be another trial's, of which it would be a clone."""
    folder: Path = trainable._trial_folder()
    yield folder
    shutil.rmtree(folder)


def trained(trainable: Any) -> dict[str, Any]:
    """The next result, flat as Tune's schedulers see it."""
    return dict(flatten_dict(trainable.train()))


def trial(loop: str, gpu_migration: bool = True, **config: Any) -> dict[str, Any]:
    return {"loop": loop, "gpu_migration": gpu_migration, **config}


def test_the_group_is_started_anew_for_another_environment_and_only_then(trainable: Any) -> None:
    """The loop reports what its process had before any trial: habana reads its variables but once."""
    seen = []
    for gpu_migration in (False, False, True, True):
        trainable.reset(trial("environment_at_start", gpu_migration))
        result = trained(trainable)
        seen.append((result["worker_pid"], result[MIGRATION]))
        assert result[names.START_SECONDS] >= 0
    assert [value for _, value in seen] == ["unset", "unset", "1", "1"]
    assert seen[0] == seen[1]
    assert seen[2] == seen[3] != seen[0]


def test_a_trial_moves_to_more_workers_at_a_checkpoint_and_the_next_trial_has_one(
    trainable: Any, tmp_path: Path
) -> None:
    trainable.reset(trial("counting", first=1, alone_from=2))
    first = trained(trainable)
    trainable.move_to(Place(2))
    assert trained(trainable)[names.DEVICES] == first[names.DEVICES]  # there is no checkpoint yet
    trainable.reset(trial("counting", first=1, alone_from=2))
    trained(trainable)
    trainable.move_to(Place(2))
    trainable.save(str(tmp_path / "saved"))
    wider = trained(trainable)
    assert (wider["epoch"], wider[names.WORKERS], len(wider[names.DEVICES].split())) == (2, 2, 2)
    alone = trained(trainable)  # what fails with more workers is tried again with as many as it had
    assert (alone["epoch"], alone.get(names.WORKERS), alone[names.DEVICES]) == (3, None, first[names.DEVICES])
    assert alone[names.LOST_SECONDS] > 0
    trainable.move_to(Place(2))
    trainable.reset(trial("counting", first=1))
    assert trained(trainable)[names.DEVICES] == first[names.DEVICES]


def test_epochs_count_from_1_also_where_the_loop_counts_from_0(trainable: Any, tmp_path: Path) -> None:
    for first in (0, 1):
        trainable.reset(trial("counting", first=first))
        assert trained(trainable)["epoch"] == 1
        saved = trainable.save(str(tmp_path / f"{first}"))
        assert trained(trainable)["epoch"] == 2
        trainable.reset(trial("counting", first=first))
        trainable.restore(saved)
        assert [trained(trainable)["epoch"] for _ in range(2)] == [2, 3]


@pytest.mark.parametrize("first", [0, 1])
def test_epochs_go_on_where_a_trial_does_also_if_each_is_reported_twice(
    trainable: Any, tmp_path: Path, first: int
) -> None:
    for reports in (1, 2):
        trainable.reset(trial("counting", first=first, each_epoch=2))
        assert [trained(trainable)["epoch"] for _ in range(reports)] == [1, 1][:reports]
        saved = trainable.save(str(tmp_path / f"{reports}"))
        trainable.reset(trial("counting", first=first, each_epoch=2))
        trainable.restore(saved)
        assert [trained(trainable)["epoch"] for _ in range(3 - reports)] == [1, 2][reports - 1 :]


@pytest.mark.parametrize("set_by", [-3600, 3600])
def test_a_clock_that_is_set_costs_no_trial_its_seconds(trainable: Any, set_by: int) -> None:
    trainable.reset(trial("counting", first=1, also={names.FIRST_STEP_AT: time.time() + set_by}))
    result = trained(trainable)
    assert 0 <= result[names.START_SECONDS] <= result[names.STEP_SECONDS]
    assert 0 <= result[names.SECOND] <= result[names.STEP_SECONDS]


def test_a_report_has_no_say_in_what_tune_does(trainable: Any) -> None:
    trainable.reset(trial("counting", first=1, also={"done": True, "should_checkpoint": False, "loss": 0.5}))
    result = trained(trainable)
    assert result["loss"] == 0.5
    assert not result["done"]
    assert "should_checkpoint" not in result


def test_a_trial_that_ends_sooner_than_it_got_before_its_workers_were_lost_has_ended(
    trainable: Any, trial_folder: Path
) -> None:
    trainable.reset(trial("counting", first=1))
    trained(trainable)
    trainable.save(str(trial_folder / "checkpoint_000000"))
    gone = tune.Checkpoint(str(trial_folder / "checkpoint_000001"))
    trainable.reset(trial("counting", first=1))
    trainable.restore(SimpleNamespace(checkpoint=gone, metrics={TRAINING_ITERATION: 5}))
    assert trained(trainable)["done"]  # the loop reports three times


def test_the_seconds_of_a_trial_continue_with_it(trainable: Any, tmp_path: Path) -> None:
    trainable.reset(trial("counting", first=1))
    results = [trained(trainable) for _ in range(2)]
    seconds = [result[names.STEP_SECONDS] - result.get(names.START_SECONDS, 0.0) for result in results]
    assert results[0][names.SECOND] == pytest.approx(seconds[0])
    assert results[1][names.SECOND] == pytest.approx(sum(seconds))
    saved = trainable.save(str(tmp_path / "saved"))
    trainable.reset(trial("counting", first=1))
    trainable.restore(saved)
    assert trained(trainable)[names.SECOND] > results[1][names.SECOND]
    trainable.reset(trial("counting", first=1))
    again = trained(trainable)
    assert again[names.SECOND] == pytest.approx(again[names.STEP_SECONDS] - again[names.START_SECONDS])


def test_a_trial_that_had_trained_all_it_wants_to_when_it_was_saved_ends(trainable: Any, tmp_path: Path) -> None:
    trainable.reset(trial("counting", first=1))
    assert [trained(trainable)["epoch"] for _ in range(3)] == [1, 2, 3]
    saved = trainable.save(str(tmp_path / "saved"))
    trainable.reset(trial("counting", first=1))
    trainable.restore(saved)
    assert trained(trainable)["done"]


def test_a_loop_that_never_asks_for_its_checkpoint_begins_anew_and_is_said_to(
    trainable: Any, trial_folder: Path
) -> None:
    trainable.reset(trial("forgetful"))
    assert [trained(trainable)["epoch"] for _ in range(2)] == [1, 2]
    saved = trainable.save(str(trial_folder / "saved"))
    trainable.reset(trial("forgetful"))
    trainable.restore(saved)
    result = trained(trainable)
    assert result["epoch"] == 3  # the first two were trained again, and not reported again
    assert result["gaudi_tune/starts_over"]
    trainable.reset(trial("counting", first=1))
    assert "gaudi_tune/starts_over" not in trained(trainable)


def test_a_checkpoint_that_is_older_than_its_report_is_continued_from_and_no_report_is_made_twice(
    trainable: Any, trial_folder: Path
) -> None:
    trainable.reset(trial("writing_now_and_then"))
    results = [trained(trainable) for _ in range(5)]
    assert [bool(result.get("gaudi_tune/starts_over")) for result in results] == [True, True, False, False, False]
    saved = trainable.save(str(trial_folder / "saved"))  # it has the third epoch
    assert read_seal(Path(saved.checkpoint.path)) == Seal(5, behind=2)
    assert saved.metrics["trained"] == 3, "Ray's own results have the metrics of the report that came with it"
    trainable.reset(trial("writing_now_and_then"))
    trainable.restore(saved)
    last = trained(trainable)
    assert (last["trained"], last[TRAINING_ITERATION]) == (6, 6)
    assert trained(trainable)["done"]


def test_a_clone_makes_the_reports_after_its_checkpoint_anew(trainable: Any, tmp_path: Path) -> None:
    trainable.reset(trial("writing_now_and_then"))
    for _ in range(5):
        trained(trainable)
    saved = trainable.save(str(tmp_path / "trial-002" / "checkpoint_000003"))  # it has the third epoch
    trainable.reset(trial("writing_now_and_then"))
    trainable.restore(saved)
    reported = [trained(trainable) for _ in range(2)]
    assert [(report["trained"], report[TRAINING_ITERATION]) for report in reported] == [(4, 4), (5, 5)]


def test_hung_workers_are_killed_and_the_trial_continues(trainable: Any, tmp_path: Path) -> None:
    trainable.reset(trial("stopping_once", been_here=str(tmp_path / "been-here")))
    first = trained(trainable)
    trainable.save(str(tmp_path / "checkpoint"))
    second, third = trained(trainable), trained(trainable)
    assert [result["epoch"] for result in (first, second, third)] == [1, 2, 3]
    assert second[names.LOST_SECONDS] >= 3 > second[names.SECOND]
    assert second["worker_pid"] == third["worker_pid"] != first["worker_pid"]
    assert not psutil.pid_exists(first["worker_pid"])


def test_a_worker_that_is_killed_leaves_no_copy_of_what_its_loop_has_written(
    trainable: Any, trial_folder: Path
) -> None:
    trainable.reset(trial("writing_now_and_then"))
    results = [trained(trainable) for _ in range(4)]
    (copy,) = (trial_folder.parent / files.GROUPS_FOLDER).glob("*.written-*")
    psutil.Process(results[-1]["worker_pid"]).kill()
    assert trained(trainable)["trained"] == 5
    assert not copy.exists()


def test_a_configuration_that_the_trial_actor_cannot_read_fails_its_trial_alone(trainable: Any) -> None:
    trainable.reset({"loop": "environment_at_start"})
    with pytest.raises(
        WorkerRaisedError, match="cannot read the configuration of the trial: KeyError: 'gpu_migration'"
    ):
        trained(trainable)
    trainable.reset(trial("environment_at_start"))
    result = trained(trainable)
    assert result["epoch"] == 1
    assert result["garbage_is_looked_for"]  # it is not while a worker starts
    assert result["interface"] in psutil.net_if_addrs()  # not wherever the name of the host leads


def test_a_checkpoint_that_is_gone_or_torn_is_passed_over(trainable: Any, trial_folder: Path) -> None:
    checkpoints = [trial_folder / f"checkpoint_{number:06d}" for number in range(2)]
    for report, checkpoint in enumerate(checkpoints, start=1):
        checkpoint.mkdir(parents=True)
        (checkpoint / "state").write_text("whole")
        seal(checkpoint, Seal(report))
    known = SimpleNamespace(checkpoint=tune.Checkpoint(str(checkpoints[1])), metrics={TRAINING_ITERATION: 2})
    shutil.rmtree(checkpoints[1])
    trainable.restore(known)
    assert (trainable._checkpoint(), trainable._saved_at()) == (str(checkpoints[0]), 1)
    assert trainable.iteration() == 2  # the second report is trained again, and not made again
    (checkpoints[0] / "state").write_text("")
    trainable.restore(known)
    assert (trainable._checkpoint(), trainable._saved_at()) == (None, 0)


def test_workers_that_are_lost_again_and_again_are_replaced_as_often_as_the_retries_say(
    trainable: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    trainable.reset(trial("dying", log=str(log)))
    assert trained(trainable)["epoch"] == 1
    with pytest.raises(LostTooOftenError, match=r"\(lost 2 times, --retries 1\)$"):
        trained(trainable)
    assert log.read_text().split() == ["begun"] * 2


def test_data_of_a_loop_is_sent_once() -> None:
    """Ray wraps the methods of a class, and Tune takes the class from its registry for each trial, which gives that of
    the same class new ones."""
    carried = os.urandom(10**6)
    registered = cloudpickle.dumps(warm_trainable(spec=carried))
    actor = ray.remote(cloudpickle.loads(registered))
    cloudpickle.loads(registered)
    assert len(cloudpickle.dumps(actor.__ray_metadata__.modified_class)) < 1.5 * len(carried)


class FullAtFirst(WarmTrainable):
    """One whose first attempt to save finds the disk full."""

    def setup(self, config: dict[str, Any]) -> None:  # type: ignore[override]
        self.folder, self.settings, self._usual_place, self.attempts = "", {}, Place(1), 0
        self._begin(config)

    def step(self) -> dict[str, Any]:
        return {"score": 0.5}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        self.attempts += 1
        assert list(Path(checkpoint_dir).iterdir()) == []
        Path(checkpoint_dir, "state").write_text("a part")
        if self.attempts == 1:
            raise OSError(errno.ENOSPC, "no space left on device")


def test_a_checkpoint_is_written_where_it_stays_and_an_attempt_that_failed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.train._internal.storage._get_ray_train_session_dir", lambda: str(tmp_path / "session"))
    monkeypatch.setattr("ray.train._internal.storage._pyarrow_fs_copy_files", None)  # nothing is copied
    monkeypatch.setattr(files, "RETRY_AFTER_S", 0.01)
    trainable = FullAtFirst(storage=StorageContext(str(tmp_path), "sweep", trial_dir_name="trial-001"))
    trainable.train()
    saved = trainable.save()
    assert trainable.attempts == 2
    assert saved.checkpoint.path == str(tmp_path / "sweep" / "trial-001" / "checkpoint_000001")
    assert [folder.name for folder in (tmp_path / "sweep" / "trial-001").glob("checkpoint_*")] == ["checkpoint_000001"]
