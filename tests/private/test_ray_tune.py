"""What this project uses of Ray Tune that Ray does not promise to keep."""

from __future__ import annotations

import inspect
import json
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray import tune
from ray.air.execution import ResourceRequest
from ray.air.execution._internal import RayActorManager
from ray.air.execution._internal.tracked_actor_task import TrackedActorTask
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError
from ray.train._internal import checkpoint_manager
from ray.train._internal.session import _TrainingResult
from ray.train._internal.storage import StorageContext
from ray.tune import CheckpointConfig
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Experiment, Trial
from ray.tune.impl import tuner_internal
from ray.tune.result import TRAINING_ITERATION
from ray.tune.schedulers import PopulationBasedTraining
from ray.tune.search import SearchGenerator
from ray.tune.search.optuna import OptunaSearch
from ray.tune.utils.object_cache import _ObjectCache

from gaudi_tune.base.files import retry_while_disk_is_full
from gaudi_tune.private import ray_objects, ray_tune


@pytest.fixture
def as_ray_has_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take the patches of this process away, and put them back afterwards."""
    with monkeypatch.context() as patch:
        patch.setattr(Trial, "handle_error", ray_tune._handle_error)
        patch.setattr(RayActorManager, "_actor_task_failed", ray_tune._actor_task_failed)
        patch.setattr(checkpoint_manager, "_delete_fs_path", ray_tune._delete_fs_path)
        yield


def failed(error: Exception) -> Trial:
    trial = Trial("any", stub=True, max_failures=2)
    trial.storage = SimpleNamespace(trial_driver_staging_path=None)  # it writes its error nowhere
    trial.handle_error(error)
    return trial


@pytest.mark.usefixtures("as_ray_has_it")
def test_tune_retries_an_error_of_the_trainable_until_it_is_told_never_to() -> None:
    final, other = (RayTaskError("train", "traceback", cause) for cause in (KeyError("final"), ValueError("other")))
    assert failed(final).should_recover()
    ray_tune.never_retry((KeyError,))
    ray_tune.never_retry((KeyError,))  # twice is as good as once
    assert not failed(final).should_recover()
    assert failed(other).should_recover()
    assert failed(RayActorError()).should_recover()
    assert failed(final).num_failures == 1
    assert ray_tune.last_error(failed(other)) is other
    assert ray_tune.last_error(Trial("any", stub=True)) is None


def manager_with_actor(on_error: Callable[[Any, Exception], None]) -> tuple[RayActorManager, TrackedActorTask]:
    nothing_to_book = SimpleNamespace(request_resources=lambda **_: None, free_resources=lambda **_: None)
    manager, request = RayActorManager(cast(Any, nothing_to_book)), ResourceRequest([{"CPU": 1}])
    actor = manager.add_actor(SimpleNamespace, {}, request, on_error=on_error)
    manager._live_actors_to_ray_actors_resources[actor] = (None, request)
    return manager, TrackedActorTask(actor)


@pytest.mark.usefixtures("as_ray_has_it")
def test_a_killed_actor_ends_the_sweep_unless_its_error_is_taken_for_a_loss() -> None:
    heard: list[Exception] = []
    killed = OutOfMemoryError("low on memory")
    manager, task = manager_with_actor(lambda _, error: heard.append(error))
    with pytest.raises(RuntimeError, match="Caught unexpected exception"):
        manager._actor_task_failed(task, killed)
    ray_tune.take_for_lost_actors((OutOfMemoryError,), lambda error: RayActorError(error_msg=f"lost: {error}"))
    manager, task = manager_with_actor(lambda _, error: heard.append(error))
    manager._actor_task_failed(task, killed)
    (error,) = heard
    assert isinstance(error, RayActorError)
    assert str(error).startswith("lost: ")


def test_tune_has_what_a_trial_goes_on_elsewhere_with() -> None:
    task = inspect.signature(TuneController._schedule_trial_task).parameters
    assert list(task)[1:5] == ["trial", "method_name", "args", "kwargs"]
    assert list(inspect.signature(TuneController._cleanup_cached_actors).parameters) == ["self", "force_all"]
    written = inspect.getsource(TuneController.__init__)
    assert all(f"self.{name}" in written for name in ("_trial_to_actor", "_actor_cache", "_staged_trials"))
    assert isinstance(_ObjectCache.num_cached_objects, property)


def trial_with_checkpoints(folder: Path, *scores: float, kept: int = 9) -> Trial:
    config = CheckpointConfig(num_to_keep=kept, checkpoint_score_attribute="score")
    storage = StorageContext(str(folder), experiment_dir_name="sweep")
    trial = Trial("any", stub=True, checkpoint_config=config, storage=storage)
    for number, score in enumerate(scores):
        (folder / str(number)).mkdir()
        checkpoint = tune.Checkpoint.from_directory(folder / str(number))
        trial.on_checkpoint(_TrainingResult(checkpoint, {"score": score, TRAINING_ITERATION: number}))
    return trial


def checkpoints_in_state(trial: Trial) -> list[ray_tune.Saved]:
    """Return the checkpoints in what Tune writes of a trial: its JSON, parts of which it keeps."""
    _, metadata = trial.get_json_state()
    restored = Trial("any", stub=True)
    restored.restore_run_metadata(metadata)
    return ray_tune.checkpoints_of(restored)


@pytest.mark.usefixtures("as_ray_has_it")
def test_tune_s_event_loop_does_not_wait_until_a_checkpoint_is_deleted(tmp_path: Path) -> None:
    ray_tune.delete_in_thread()
    disk_answers = threading.Event()
    ray_tune._deletions.submit(disk_answers.wait, 60)
    trial_with_checkpoints(tmp_path, 0.5, 0.7, kept=1)
    assert (tmp_path / "0").exists()
    disk_answers.set()
    ray_tune._deletions.submit(lambda: None).result()
    assert not (tmp_path / "0").exists()


def test_tune_keeps_checkpoints_in_the_order_of_their_scores_and_forgets_some(tmp_path: Path) -> None:
    trial = trial_with_checkpoints(tmp_path, 0.2, 0.9, 0.5)
    saved = ray_tune.checkpoints_of(trial)
    assert [one.metrics["score"] for one in saved] == [0.2, 0.5, 0.9]
    assert Path(saved[0].checkpoint.path) == tmp_path / "0"
    assert trial.latest_checkpoint_result.metrics["score"] == 0.5
    assert [one.metrics["score"] for one in checkpoints_in_state(trial)] == [0.2, 0.5, 0.9]
    ray_tune.keep_checkpoints(trial, saved[1:], latest=True)
    assert ray_tune.checkpoints_of(trial) == saved[1:]
    assert trial.latest_checkpoint_result is saved[1]
    assert [one.metrics["score"] for one in checkpoints_in_state(trial)] == [0.5, 0.9]
    ray_tune.keep_checkpoints(trial, saved[2:], latest=False)
    assert trial.latest_checkpoint_result is saved[2]


class Counting(tune.Trainable):
    """A trainable that remembers nothing but its iteration."""

    def step(self) -> dict[str, Any]:
        return {"score": 0.5}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "state").write_text("saved")

    def load_checkpoint(self, checkpoint: Any) -> None:
        assert Path(checkpoint, "state").read_text() == "saved"


def test_a_trainable_saves_into_the_folder_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.train._internal.storage._get_ray_train_session_dir", lambda: str(tmp_path / "session"))
    storage = StorageContext(str(tmp_path), experiment_dir_name="sweep", trial_dir_name="trial-001")
    trainable = Counting(storage=storage)
    trainable.train()
    for expected in ("checkpoint_000010", "checkpoint_000010_2", "checkpoint_000010_3"):
        folder = ray_tune.name_checkpoint(trainable, "checkpoint_000010")
        saved: ray_tune.Saved = trainable.save()
        assert saved.checkpoint.path == str(folder) == str(tmp_path / "sweep" / "trial-001" / expected)
    folder = ray_tune.name_checkpoint(trainable, "checkpoint_000020")
    with monkeypatch.context() as patched:
        patched.setattr("ray.train._internal.storage._pyarrow_fs_copy_files", None)  # it is written where it stays
        in_place: ray_tune.Saved = trainable.save(str(folder))
    assert in_place.checkpoint.path == str(folder)
    assert Path(in_place.checkpoint.path, "state").is_file()
    assert saved.metrics[TRAINING_ITERATION] == 1
    other = Counting()
    assert ray_tune.name_checkpoint(other, "any") is None
    other.restore(saved)
    assert other.iteration == 1
    ray_tune.set_iteration(other, 7)
    assert other.iteration == 7
    assert other.train()[TRAINING_ITERATION] == 8


def test_a_scheduler_may_pause_a_trial_as_it_is_added() -> None:
    """Trials that a resumed sweep had paused stay so: Tune files a trial by its status after the scheduler has it."""
    trial = Trial("any", stub=True)
    scheduler = SimpleNamespace(on_trial_add=lambda controller, trial: trial.set_status(Trial.PAUSED))
    kinds = ("live", "pending", "running", "paused", "stopped", "failed")
    filed: dict[str, Any] = {f"_{kind}_trials": set() for kind in kinds}
    controller = SimpleNamespace(
        **filed, _trials=[], _scheduler_alg=scheduler, _placeholder_resolvers=None,
        _wrapped=lambda: None, _mark_trial_to_checkpoint=lambda trial: None,
    )  # fmt: skip
    TuneController.add_trial(controller, trial)
    assert (controller._paused_trials, controller._pending_trials) == ({trial}, set())


def test_tune_writes_down_a_trial_that_is_marked() -> None:
    trial, controller = Trial("any", stub=True), SimpleNamespace(_trials_to_cache=set(), _trial_metadata={})
    controller._mark_trial_to_checkpoint = partial(TuneController._mark_trial_to_checkpoint, controller)
    controller.stop_trial = lambda trial: trial.set_status(Trial.TERMINATED)
    ray_tune.end_paused(controller, trial)
    (state, _) = TuneController._get_trial_checkpoints(controller)[trial.trial_id]
    assert json.loads(state)["status"] == Trial.TERMINATED


def test_pbt_refuses_a_searcher_and_has_a_state_for_each_trial_that_it_is_given() -> None:
    scheduler = PopulationBasedTraining(hyperparam_mutations={"x": tune.uniform(0, 1)})
    scheduler.set_search_properties("score", "max")
    trial = Trial("any", config={"x": 0.5}, stub=True)
    ours = SimpleNamespace(search_alg=SearchGenerator(OptunaSearch(metric="score", mode="max")))
    with pytest.raises(ValueError, match="cannot be used with"):
        scheduler.on_trial_add(ours, trial)
    scheduler.on_trial_add(ray_tune.ForScheduler(None, None), trial)
    state = ray_objects.pbt_states(scheduler)[trial]
    assert set(ray_objects.PBT_STATE) < vars(state).keys()
    assert vars(state).keys() - set(ray_objects.PBT_STATE) == {"orig_tag", "last_checkpoint"}
    state.last_train_time = 3
    assert scheduler._trial_state[trial].last_train_time == 3


def test_tune_begins_the_tag_of_a_trial_with_its_number() -> None:
    """The state of a sweep reads it there: Tune has no other number for a trial that a resumed sweep keeps."""
    generator = SearchGenerator(OptunaSearch({"x": tune.uniform(0, 1)}, metric="score", mode="max"))
    generator.add_configurations([Experiment("sweep", Counting, config={"x": tune.uniform(0, 1)}, num_samples=2)])
    assert [generator.next_trial().experiment_tag.split("_")[0] for _ in range(2)] == ["1", "2"]


def test_the_trials_that_train_are_those_that_run_or_are_about_to() -> None:
    controller = object.__new__(TuneController)
    running, pending = Trial("any", stub=True), Trial("any", stub=True)
    controller._running_trials, controller._pending_trials = {running}, {pending}
    assert ray_tune.training_of(controller) == {running, pending}


def test_a_trial_knows_its_actor(host: Any) -> None:
    trial = Trial("any", stub=True)
    assert ray_tune.actor_of(trial) == ""
    trial.temporary_state.ray_actor = host
    assert ray_tune.actor_of(trial) == host._actor_id.hex()


def trials_with_folders(number: int, folder: Path, patch: pytest.MonkeyPatch) -> list[Trial]:
    patch.setattr(StorageContext, "experiment_driver_staging_path", str(folder / "staging"))
    trials = []
    for name in (f"trial-{place}" for place in range(number)):
        storage = StorageContext(str(folder), "sweep", trial_dir_name=name)
        trials.append(Trial("any", stub=True, storage=storage))
        trials[-1].relative_logdir = name
        trials[-1].init_local_path()
        Path(storage.trial_fs_path).mkdir(parents=True)
    return trials


def test_few_files_stay_open_and_none_is_replaced_by_its_older_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = trials_with_folders(3, tmp_path, monkeypatch)
    logger = ray_tune._JsonLogger(2, retry_while_disk_is_full)
    for step in range(1, 4):
        for trial in trials:
            logger.log_trial_start(trial)
            logger.log_trial_result(step, trial, {"step": step, "config": {}})
        saved = _TrainingResult(tune.Checkpoint(str(tmp_path)), {"step": step})
        trials[0].run_metadata.checkpoint_manager._latest_checkpoint_result = saved
        Path(trials[0].storage.trial_fs_path, "result.json").write_text("older\n")
    assert len(logger._trial_files) == 2
    lines = Path(str(trials[0].local_path), "result.json").read_text().splitlines()
    assert len(lines) == 3
    assert "older" not in lines


def test_a_trial_begins_when_the_disk_has_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (trial,) = trials_with_folders(1, tmp_path, monkeypatch)
    parameters = Path(str(trial.local_path), "params.json")
    parameters.symlink_to("/dev/full")

    def make_room(write: Callable[[], None], description: str) -> None:
        with pytest.raises(OSError, match="No space left"):
            write()
        parameters.unlink()
        write()

    logger = ray_tune._JsonLogger(2, make_room)
    logger.log_trial_start(trial)
    assert json.loads(parameters.read_text()) == trial.config
    assert trial in logger._trial_files


def test_a_report_is_in_the_file_once_when_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trial,) = trials_with_folders(1, tmp_path, monkeypatch)
    file, waits = Path(str(trial.local_path), "result.json"), []
    file.symlink_to("/dev/full")

    def make_room(write: Callable[[], None], description: str) -> None:
        if "configuration" in description:
            write()
            return
        waits.append(description)
        with pytest.raises(OSError, match="No space left"):
            write()
        with (tmp_path / "room").open("w") as room:
            os.dup2(room.fileno(), logger._trial_files[trial].fileno())
        write()

    logger = ray_tune._JsonLogger(2, make_room)
    logger.log_trial_start(trial)
    for step in (1, 2):
        logger.log_trial_result(step, trial, {"step": step, "config": {}})
    assert [json.loads(line)["step"] for line in (tmp_path / "room").read_text().splitlines()] == [1, 2]
    assert len(waits) == 1


def test_a_tuner_is_restored_without_earlier_results_where_they_cannot_be_read() -> None:
    source = inspect.getsource(tuner_internal.TunerInternal._restore_from_path_or_uri)
    assert "self._experiment_analysis = ExperimentAnalysis(" in source
    assert "except Exception:\n            self._experiment_analysis = None" in source
    before = tuner_internal.ExperimentAnalysis
    with ray_tune.no_earlier_results(), pytest.raises(LookupError):
        tuner_internal.ExperimentAnalysis("anywhere")
    assert tuner_internal.ExperimentAnalysis is before


def test_tune_looks_up_a_trainable_once_and_asks_its_actor_nothing() -> None:
    class Local(tune.Trainable):
        """Read again, it is another class."""

    tune.register_trainable("looked-up", Local)
    trial, actor = Trial("looked-up", stub=True), SimpleNamespace()
    with ray_tune.quick_trial_starts():
        first, second = (Trial("looked-up").get_trainable_cls() for _ in range(2))
        assert first is second is not None
        trial.set_ray_actor(actor)
        assert trial.temporary_state.ray_actor is actor
        assert set(trial.last_result) == {"trial_id"}
    with pytest.raises(AttributeError, match="get_auto_filled_metrics"):  # Tune itself asks it
        trial.set_ray_actor(actor)
