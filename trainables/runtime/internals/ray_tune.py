"""Ray Tune: which failures it retries, the checkpoints that it knows of a trial, and the state of its PBT scheduler."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from ray import tune
from ray.air.execution._internal import RayActorManager
from ray.exceptions import RayActorError, RayTaskError
from ray.tune.execution.experiment_state import _ExperimentCheckpointManager
from ray.tune.experiment import Trial
from ray.tune.impl import tuner_internal
from ray.tune.logger import JsonLoggerCallback
from ray.tune.schedulers import PopulationBasedTraining
from ray.tune.search import Searcher
from ray.tune.trainable.metadata import _TrainingRunMetadata
from ray.tune.utils.serialization import TuneFunctionEncoder

_handle_error = Trial.handle_error
_actor_task_failed = RayActorManager._actor_task_failed
_read_metadata, _set_storage = _TrainingRunMetadata.from_json_state, Trial.set_storage
_set_attribute = _TrainingRunMetadata.__setattr__
_write_state = _ExperimentCheckpointManager.sync_up_experiment_state


def never_retry(errors: tuple[type[BaseException], ...]) -> None:
    """Have Tune, in this process, not retry a trial that failed with one of these errors.

    ``max_failures`` counts lost actors and errors of the trainable alike, and no callback runs between an error and
    Tune's decision (Ray 2.60), so the method of trials that takes errors is wrapped.
    """

    def handle_error(self: Trial, exc: Any = None) -> None:
        _handle_error(self, exc)
        if isinstance(getattr(exc, "cause", None), errors):
            self.max_failures = 0

    Trial.handle_error = handle_error


def take_for_lost_actors(errors: tuple[type[BaseException], ...], text_of: Callable[[BaseException], str]) -> None:
    """Have Tune, in this process, treat these errors of an actor's task as the loss of the actor.

    Ray raises, for example, OutOfMemoryError for an actor that it killed. Tune (Ray 2.60) knows RayActorError alone,
    ends the whole sweep with "Caught unexpected exception" at any other, and has no setting for it, so the method of
    its actor manager that takes errors is wrapped.

    Args:
        errors: Those that mean a lost actor. RayActorError and RayTaskError pass as they are.
        text_of: Returns the text that the trial's error is to have.
    """

    def actor_task_failed(self: RayActorManager, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, errors) and not isinstance(exception, (RayActorError, RayTaskError)):
            exception = RayActorError(error_msg=text_of(exception))
        _actor_task_failed(self, tracked_actor_task, exception)

    RayActorManager._actor_task_failed = actor_task_failed


class StateKeeper(tune.Callback):
    """A callback that keeps the state of its sweep, which Tune itself then writes at the sweep's end alone."""

    def keep_state(self, trials: Mapping[str, tuple[str, str]], controller: str, search_alg: Any) -> None:
        """Keep the state.

        Args:
            trials: What Tune writes of each trial, by its id: of the trial, and of its run. The same object until the
                trial changes.
            controller: What Tune writes beside them, as JSON.
            search_alg: What proposes the trials; its ``save_to_dir(folder, session_str)`` writes two files.
        """
        raise NotImplementedError


COPIES_EVERY_S = 30.0
"""How long after the last copies, at most, Tune copies the reports of trials to the sweep's folder."""


class _Paced:
    """Something that takes no more than a share of the time. There is a pause after it, in bounds, in seconds."""

    def __init__(self, share: float, pause_s: tuple[float, float] = (0.0, math.inf)) -> None:
        self._share, self._bounds, self._not_before = share, pause_s, 0.0
        self._began: float | None = None

    @property
    def is_due(self) -> bool:
        return self._began is None and time.monotonic() >= self._not_before

    def begin(self) -> None:
        self._began = time.monotonic()

    def end(self) -> None:
        if self._began is not None:
            now, (least, most) = time.monotonic(), self._bounds
            self._not_before = now + min(max((now - self._began) / self._share, least), most)
            self._began = None


def give_state_to_keepers(share: float) -> None:
    """Have Tune, in this process, give the state of a sweep that has a :class:`StateKeeper` to that.

    Tune (Ray 2.60) writes all trials as a whole, in place, and copies all files of the sweep to its folder each time.
    With ``num_to_keep`` it does so for each checkpoint of a trial, at the next step, after it has waited for the copies
    of the time before. No setting changes that. A keeper is given the state as often, and takes a ``share`` of the time
    at most; so do the copies, which a thread makes, unless they would be older than :data:`COPIES_EVERY_S`, and nothing
    waits for them. At the end of a sweep both is done in any case, and Tune writes its state, too, for Ray's own tools.
    """

    def write_state(self: Any, save_fn: Callable[[], None], force: bool = False, wait: bool = False) -> None:
        controller = save_fn.__self__  # type: ignore[attr-defined]
        callbacks = controller._callbacks._callbacks
        keeper = next((callback for callback in callbacks if isinstance(callback, StateKeeper)), None)
        if keeper is None:
            _write_state(self, save_fn, force=force, wait=wait)
            return

        def keep() -> None:
            rest = {"runner_data": controller.__getstate__(), "stats": {"start_time": controller._start_time}}
            as_json = json.dumps(rest, cls=TuneFunctionEncoder)
            keeper.keep_state(controller._get_trial_checkpoints(), as_json, controller.search_alg)

        if force:
            keep()
            _write_state(self, save_fn, force=True, wait=wait)
            return
        if not hasattr(self, "keeping"):
            self.keeping = _Paced(share)
            self.copying = _Paced(share, (self._checkpoint_period, COPIES_EVERY_S))
        wanted = self._should_force_sync_up or time.monotonic() - self._last_save_time >= self._checkpoint_period
        if wanted and self.keeping.is_due:
            self.keeping.begin()
            keep()
            self.keeping.end()
            self._last_save_time, self._should_force_sync_up = time.monotonic(), False
            self._trial_num_checkpoints_since_last_sync.clear()
        storage, copies = self._storage, self._storage.syncer._sync_process
        if copies is None or not copies.is_running:
            self.copying.end()
            if self.copying.is_due:
                self.copying.begin()
                storage.syncer.sync_up(storage.experiment_driver_staging_path, storage.experiment_fs_path)

    _ExperimentCheckpointManager.sync_up_experiment_state = write_state


def results_of(folder: Path, trials: Iterable[tuple[str, str]]) -> tune.ResultGrid:
    """Return the results of a sweep in ``folder`` from what a :class:`StateKeeper` was given of its trials."""
    restored = []
    for of_trial, of_run in trials:
        trial = Trial.from_json_state(of_trial, stub=True)
        trial.restore_run_metadata(of_run)
        storage = copy.copy(trial.storage)
        storage.storage_fs_path, storage.experiment_dir_name = folder.parent.as_posix(), folder.name
        trial.set_storage(storage)
        restored.append(trial)
    # With trials, it reads no such file.
    return tune.ResultGrid(tune.ExperimentAnalysis(str(folder / "trials.json"), trials=restored))


def keep_what_is_read() -> None:
    """Have Tune, in this process, not write again what it has read of a trial until that changes.

    Tune (Ray 2.60) keeps what it has written of each trial as JSON, but not what it has read: a resumed sweep of ten
    thousand trials would write all of them again, for half a minute. It does where the sweep's folder has moved.
    And it takes for a change that it sets the errors of each trial that goes on to None, which they mostly are.
    """

    def from_json_state(json_state: str) -> _TrainingRunMetadata:
        read = _read_metadata(json_state)
        read._cached_json = json_state
        return read

    def set_storage(self: Trial, new_storage: Any) -> None:
        if new_storage.trial_fs_path != self.storage.trial_fs_path:
            self.run_metadata.invalidate_cache()
        _set_storage(self, new_storage)

    def set_attribute(self: _TrainingRunMetadata, key: str, value: Any) -> None:
        if value is not None or vars(self).get(key, self) is not None:
            _set_attribute(self, key, value)

    _TrainingRunMetadata.from_json_state = from_json_state
    _TrainingRunMetadata.__setattr__ = set_attribute
    Trial.set_storage = set_storage


@contextmanager
def no_earlier_results() -> Iterator[None]:
    """Let ``Tuner.restore()`` inside the block not read the reports of all trials into tables, which take some
    milliseconds each: ``get_results()`` would return them before ``fit()``. Tune (Ray 2.60) does without them where
    they cannot be read."""

    def none(*_: Any, **__: Any) -> None:
        raise LookupError("they are not needed")

    kept, tuner_internal.ExperimentAnalysis = tuner_internal.ExperimentAnalysis, none
    try:
        yield
    finally:
        tuner_internal.ExperimentAnalysis = kept


class JsonLogger(JsonLoggerCallback):
    """Ray's own, which keeps few files open, and leaves a file that is there as it is.

    Ray's (2.60) closes the file of a trial when it has ended, and opens it again for each start. So thousands of
    trials that wait keep theirs open, with a buffer each. And whenever a trial with a checkpoint goes on, it replaces
    its file by the copy in the sweep's folder, which is older, and loses the last reports.
    """

    def __init__(self, most: int) -> None:
        """Keep the files of at most so many trials open."""
        super().__init__()
        self._most = most

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Write a report, and close the file that was not written for longest if there are too many."""
        super().log_trial_result(iteration, trial, result)
        self._trial_files[trial] = self._trial_files.pop(trial)
        if len(self._trial_files) > self._most:
            self.log_trial_end(next(iter(self._trial_files)))

    def _restore_from_remote(self, file_name: str, trial: Trial) -> None:
        if trial.local_path is None or not Path(trial.local_path, file_name).exists():
            super()._restore_from_remote(file_name, trial)


class Saved(Protocol):
    """A checkpoint with the metrics of its report: what Trainable.save() returns and restore() takes. Ray's type for it
    is private."""

    checkpoint: tune.Checkpoint
    metrics: dict[str, Any]


def checkpoints_of(trial: Trial) -> list[Saved]:
    """Return the checkpoints that Tune keeps of a trial, the best last. Publicly only the newest can be had."""
    saved: list[Saved] = trial.run_metadata.checkpoint_manager._checkpoint_results
    return saved


def keep_checkpoints(trial: Trial, kept: list[Saved], *, latest: bool) -> None:
    """Have Tune forget the other checkpoints of a trial; publicly one cannot be dropped.

    Args:
        trial: A trial of this process.
        kept: Some of what :func:`checkpoints_of` returns, in that order.
        latest: Whether the latest stays, from which the trial would go on; else the best of ``kept`` takes its place.
    """
    manager = trial.run_metadata.checkpoint_manager
    manager._checkpoint_results = kept
    if not latest:
        manager._latest_checkpoint_result = manager.best_checkpoint_result
    # Tune keeps both as JSON, from which it writes its state, and ResultGrid is made of that.
    trial.invalidate_json_state()
    trial.run_metadata.invalidate_cache()


def checkpoint_folder(trainable: tune.Trainable) -> str | None:
    """Return the folder that a trainable copies its next checkpoint to; None outside Tune. Publicly it is known only
    after a save that succeeded, and a failed one leaves a torn copy there."""
    storage = trainable._storage
    return None if storage is None else storage.checkpoint_fs_path


def set_iteration(trainable: tune.Trainable, iteration: int) -> None:
    """Set how many results a trainable has returned. Only ``restore()`` sets it, from a checkpoint that must exist."""
    trainable._iteration = iteration


def searcher_of(tune_controller: Any) -> Searcher:
    """Return the searcher of a sweep. Schedulers are given the controller, and Tune wraps the searcher in it."""
    return tune_controller.search_alg.searcher


def training_of(tune_controller: Any) -> set[Trial]:
    """Return the trials that run or are about to. Publicly all trials can be had, and asked one by one, which takes
    milliseconds of each step where there are ten thousand."""
    controller = getattr(tune_controller, "_tune_controller", tune_controller)
    training: set[Trial] = controller._running_trials | controller._pending_trials
    return training


def actor_of(trial: Trial) -> str:
    """Return the id of the trial actor that a trial has; "" if it has none. Tune has no public name for it."""
    actor = trial.temporary_state.ray_actor
    return "" if actor is None else str(actor._actor_id.hex())


def end_paused(tune_controller: Any, trial: Trial) -> None:
    """End a paused trial for good. Tune (Ray 2.60) does not write down by itself that it has ended, and a resumed sweep
    would start it again. Schedulers are given the controller in a wrapper, which warns of what it calls restricted."""
    controller = getattr(tune_controller, "_tune_controller", tune_controller)
    controller.stop_trial(trial)
    controller._mark_trial_to_checkpoint(trial)


def go_on_with(tune_controller: Any, trial: Trial, place: Any) -> None:
    """Ask the trial actor of a trial, if it has one, to train it on another place. Tune (Ray 2.60) calls ``save`` and
    ``train`` of a trainable in this way, one after another, and has no public one for other methods."""
    controller = getattr(tune_controller, "_tune_controller", tune_controller)
    if trial in controller._trial_to_actor:
        controller._schedule_trial_task(trial=trial, method_name="go_on_with", args=(place,))


def end_idle_actors(tune_controller: Any) -> None:
    """End the trial actors that have no trial, unless one is about to come. Tune (Ray 2.60) keeps one for a trial that
    may yet be proposed, and its workers keep their devices."""
    controller = getattr(tune_controller, "_tune_controller", tune_controller)
    if controller._actor_cache.num_cached_objects and not controller._staged_trials:
        controller._cleanup_cached_actors(force_all=True)


NO_SEARCHER = SimpleNamespace(search_alg=None)
"""In place of the controller in ``PopulationBasedTraining.on_trial_add``, which raises where it finds a searcher there:
Ray has PBT start from grids and random samples alone."""

PBT_STATE = ("last_score", "last_perturbation_time", "last_train_time", "last_result")
"""What PBT knows of a trial, besides its checkpoint. It cannot save or restore its state by itself."""


def pbt_states(scheduler: PopulationBasedTraining) -> dict[Trial, Any]:
    """Return what PBT knows of each trial: objects with :data:`PBT_STATE` as attributes, which may be set."""
    states: dict[Trial, Any] = scheduler._trial_state
    return states
