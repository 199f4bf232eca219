"""Ray Tune: which failures it retries, its actors, and the checkpoints of a trial."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import chain, count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ray import tune
from ray.exceptions import RayActorError, RayTaskError
from ray.tune.experiment import Trial
from ray.tune.logger import JsonLoggerCallback

from gaudi_tune.private.surfaces import holds, part

with suppress(ImportError, AttributeError):
    from ray.air.execution._internal import RayActorManager

    _actor_task_failed = RayActorManager._actor_task_failed
with suppress(ImportError, AttributeError):
    from ray.train._internal import checkpoint_manager

    _delete_fs_path = checkpoint_manager._delete_fs_path
with suppress(ImportError):
    from ray.train._internal.storage import StorageContext
with suppress(ImportError):
    from ray.tune.impl import tuner_internal
    from ray.tune.registry import _global_registry
with suppress(ImportError):
    from ray.tune.result import TRIAL_INFO
with suppress(AttributeError):
    _handle_error = Trial.handle_error
_deletions = ThreadPoolExecutor(1, "deletions")
_last_errors: WeakKeyDictionary[Trial, BaseException] = WeakKeyDictionary()


@part("errors-of-trials", lambda errors: None)
def never_retry(errors: tuple[type[BaseException], ...]) -> None:
    """Have Tune, in this process, not retry a trial that fails with one of these errors, and keep each trial's last
    error for :func:`last_error`.

    ``max_failures`` counts lost actors and errors of the trainable together, and no callback runs between an error and
    Tune's decision (Ray 2.60), so the method that handles errors of trials is wrapped. Callbacks are not given the
    error, and Tune's files may have an earlier one.
    """

    def handle_error(self: Trial, exc: Any = None) -> None:
        _handle_error(self, exc)
        _last_errors[self] = exc
        if isinstance(getattr(exc, "cause", None), errors):
            self.max_failures = 0

    Trial.handle_error = handle_error


@part("errors-of-trials", lambda trial: trial.get_error())
def last_error(trial: Trial) -> BaseException | None:
    """Return the last error of a trial in this process, which it may have survived; None if there was none."""
    return _last_errors.get(trial)


@part("killed-for-memory", lambda errors, lost_actor: None)
def take_for_lost_actors(
    errors: tuple[type[BaseException], ...], lost_actor: Callable[[BaseException], RayActorError]
) -> None:
    """Have Tune, in this process, treat these errors of an actor's task as the loss of the actor.

    For example, Ray raises an OutOfMemoryError for an actor that it killed. Tune (Ray 2.60) expects only RayActorError,
    ends the whole sweep with "Caught unexpected exception" at any other error, and has no setting for it, so the method
    of its actor manager that handles errors is wrapped.

    Args:
        errors: The errors that mean a lost actor. RayActorError and RayTaskError are passed on as they are.
        lost_actor: Returns the error that replaces one of these.
    """

    def actor_task_failed(self: RayActorManager, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, errors) and not isinstance(exception, (RayActorError, RayTaskError)):
            exception = lost_actor(exception)
        _actor_task_failed(self, tracked_actor_task, exception)

    RayActorManager._actor_task_failed = actor_task_failed


@part("deletions", lambda: None)
def delete_in_thread() -> None:
    """Have Tune, in this process, delete checkpoints in a thread: a disk may take long, or stall.

    Its event loop (Ray 2.60) deletes the earlier checkpoint of a trial when the trial has another. No setting changes
    that, so the function that it calls is replaced.
    """

    def delete(fs: Any, fs_path: str) -> None:
        _deletions.submit(_delete_fs_path, fs, fs_path)

    checkpoint_manager._delete_fs_path = delete


def delete_later(folder: Path) -> Future[None]:
    """Delete a folder in the same thread."""
    return _deletions.submit(shutil.rmtree, folder, ignore_errors=True)


@part("quick-starts", nullcontext)
@contextmanager
def quick_trial_starts() -> Iterator[None]:
    """Have Tune (Ray 2.60) start each trial inside the block without five requests to other processes.

    It looks up the trainable in Ray's control store three times, and asks the trial actor twice for metrics that are
    used only before the trial's first report, which overwrites them.
    """
    registry, original_setter = _global_registry, Trial.set_ray_actor
    original_test, original_lookup = registry.contains, registry.get
    entries: dict[tuple[str, str], Any] = {}

    def membership(category: str, key: str) -> bool:
        return (category, key) in entries or original_test(category, key)

    def lookup(category: str, key: str) -> Any:
        if (category, key) not in entries:
            entries[category, key] = original_lookup(category, key)
        return entries[category, key]

    def set_ray_actor(self: Trial, ray_actor: Any) -> None:
        self.temporary_state.ray_actor = ray_actor

    registry.contains, registry.get, Trial.set_ray_actor = membership, lookup, set_ray_actor
    try:
        yield
    finally:
        registry.contains, registry.get, Trial.set_ray_actor = original_test, original_lookup, original_setter


@part("quick-starts", nullcontext)
@contextmanager
def no_earlier_results() -> Iterator[None]:
    """Keep ``Tuner.restore()`` inside the block from reading the reports of all trials, some milliseconds for each.

    They are only for ``get_results()`` before ``fit()``. Tune (Ray 2.60) continues without them if reading fails.
    """

    def unavailable(*_: Any, **__: Any) -> None:
        raise LookupError("they are not needed")

    original, tuner_internal.ExperimentAnalysis = tuner_internal.ExperimentAnalysis, unavailable
    try:
        yield
    finally:
        tuner_internal.ExperimentAnalysis = original


class _JsonLogger(JsonLoggerCallback):
    """Ray's logger of reports, but it keeps only some files open, and does not replace an existing file.

    Ray's own (2.60) closes the file of a trial only when the trial ends, so thousands of waiting trials keep their
    files open, with a buffer each. And whenever a trial with a checkpoint continues, it replaces the file by the copy
    in the sweep's folder, which is older and lacks the last reports.
    """

    def __init__(self, max_open_files: int, write_when_possible: Callable[[Callable[[], None], str], None]) -> None:
        """Keep the files of at most ``max_open_files`` trials open."""
        super().__init__()
        self._max_open_files, self._write_when_possible = max_open_files, write_when_possible

    # While the disk is full, Tune waits in both of these: an error would end the sweep.

    def log_trial_start(self, trial: Trial) -> None:
        """Write the configuration of a trial, and open its file."""
        self._write_when_possible(partial(super().log_trial_start, trial), f"the configuration of {trial}")

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Write a report. If too many files are open, close the least recently written one."""
        if trial not in self._trial_files:
            self.log_trial_start(trial)
        try:
            super().log_trial_result(iteration, trial, result)
        except OSError:
            # The line is in the file's buffer; to log it again would write it twice.
            self._write_when_possible(self._trial_files[trial].flush, f"a report of {trial}")
        self._trial_files[trial] = self._trial_files.pop(trial)
        if len(self._trial_files) > self._max_open_files:
            self.log_trial_end(next(iter(self._trial_files)))

    def _restore_from_remote(self, file_name: str, trial: Trial) -> None:
        if trial.local_path is None or not Path(trial.local_path, file_name).exists():
            super()._restore_from_remote(file_name, trial)


def json_logger(
    max_open_files: int, write_when_possible: Callable[[Callable[[], None], str], None]
) -> JsonLoggerCallback:
    """Return the logger of reports.

    Args:
        max_open_files: How many files of trials are open at a time.
        write_when_possible: Calls a function that writes until the disk has room; it is told what is written.
    """
    return _JsonLogger(max_open_files, write_when_possible) if holds("log-of-reports") else JsonLoggerCallback()


class Saved(Protocol):
    """A checkpoint with the metrics of its report, which Trainable.save() returns and restore() takes.

    Ray's own type for it is private.
    """

    checkpoint: tune.Checkpoint
    metrics: dict[str, Any]


@part("checkpoints", lambda trial: [])
def checkpoints_of(trial: Trial) -> list[Saved]:
    """Return the checkpoints that Tune keeps of a trial, the best one last. Publicly only the newest is available."""
    saved: list[Saved] = trial.run_metadata.checkpoint_manager._checkpoint_results
    return saved


@part("checkpoints", lambda trial, checkpoints, *, latest: None)
def keep_checkpoints(trial: Trial, checkpoints: list[Saved], *, latest: bool) -> None:
    """Have Tune keep only these checkpoints of a trial. There is no public way to drop one.

    Args:
        trial: A trial of this process.
        checkpoints: Some of the result of :func:`checkpoints_of`, in that order.
        latest: Whether to keep the latest one, from which the trial would continue. If not, the best one replaces it.
    """
    manager = trial.run_metadata.checkpoint_manager
    manager._checkpoint_results = checkpoints
    if not latest:
        manager._latest_checkpoint_result = manager.best_checkpoint_result
    # Tune caches both as JSON, for its state on disk and for ResultGrid.
    trial.invalidate_json_state()
    trial.run_metadata.invalidate_cache()


with suppress(NameError):

    class _NamedStorage(StorageContext):
        """A storage whose next checkpoint has a given name, and is written where it stays."""

        name = ""

        @property
        def checkpoint_dir_name(self) -> str:
            return self.name

        def persist_current_checkpoint(self, checkpoint: tune.Checkpoint) -> tune.Checkpoint:
            if checkpoint.path != self.checkpoint_fs_path:
                return super().persist_current_checkpoint(checkpoint)
            return tune.Checkpoint(checkpoint.path, filesystem=self.storage_filesystem)


@part("checkpoint-names", lambda trainable, name: None)
def name_checkpoint(trainable: tune.Trainable, name: str) -> Path | None:
    """Have a trainable keep its next checkpoint in a new folder in that of its trial, and return the folder; None
    outside Tune. A checkpoint that is saved there is not copied.

    If there is a folder of this name, the new one has a number at its end. Tune (Ray 2.60) counts checkpoints, so its
    names do not tell after which epoch one was written, and has no setting for it.
    """
    storage = trainable._storage
    if storage is None:
        return None
    folder = Path(storage.trial_fs_path, name)
    numbered_folders = (folder.with_name(f"{name}_{number}") for number in count(2))
    free_folder = next(place for place in chain([folder], numbered_folders) if not place.exists())
    storage.__class__, storage.name = _NamedStorage, free_folder.name
    return free_folder


def new_trainable(kind: type[tune.Trainable], config: dict[str, Any], folder: Path) -> tune.Trainable:
    """Return an object of a class as Tune makes it for a trial, with the trial's folder as its ``logdir``.

    Without Tune (Ray 2.60), an object makes itself a folder in the home folder.
    """

    class InFolder(kind):
        def _setup_logdir(self) -> None:
            self._logdir = str(folder)

        def _create_logger(self, *_: Any) -> None:  # what Ray 2.53 calls in its place, with loggers that want Tune
            from ray.tune.logger import NoopLogger

            self._setup_logdir()
            self._result_logger = NoopLogger({}, self._logdir)

    InFolder.__name__ = kind.__name__
    info = SimpleNamespace(trial_id=folder.name, trial_name=folder.name, trial_resources=None)
    trainable: tune.Trainable = InFolder({**config, TRIAL_INFO: info})
    return trainable


def set_iteration(trainable: tune.Trainable, iteration: int) -> None:
    """Set how many results a trainable has returned. Publicly only ``restore()`` sets it, from an existing
    checkpoint."""
    trainable._iteration = iteration


def _all_training(tune_controller: Any) -> set[Trial]:
    """Return the same by what Tune's schedulers are given."""
    return {trial for trial in tune_controller.get_trials() if trial.status in (Trial.RUNNING, Trial.PENDING)}


@part("controller", _all_training)
def training_of(tune_controller: Any) -> set[Trial]:
    """Return the trials that run or are about to run.

    The public API returns all trials, and looking at ten thousand of them takes milliseconds in each step.
    """
    controller = getattr(tune_controller, "_tune_controller", tune_controller)
    training: set[Trial] = controller._running_trials | controller._pending_trials
    return training


@part("controller", lambda trial: "")
def actor_of(trial: Trial) -> str:
    """Return the id of a trial's actor; "" if it has none. Tune has no public name for it."""
    actor = trial.temporary_state.ray_actor
    return "" if actor is None else str(actor._actor_id.hex())


def end_paused(tune_controller: Any, trial: Trial) -> None:
    """End a paused trial for good.

    Tune (Ray 2.60) does not record by itself that such a trial has ended, so a resumed sweep would start it again.
    Schedulers get the controller in a wrapper, which warns of methods that it calls restricted.
    """
    controller = getattr(tune_controller, "_tune_controller", tune_controller)
    controller.stop_trial(trial)
    if holds("controller"):
        controller._mark_trial_to_checkpoint(trial)


class ForScheduler:
    """Tune's controller as a scheduler of Ray's sees it, which calls methods that are private to Tune.

    PopulationBasedTraining raises an error if the controller has a searcher: in Ray, it starts only from grids and
    random samples. HyperBandForBOHB tells the searcher itself which trials wait.
    """

    def __init__(self, controller: Any, searcher: Any) -> None:
        self._controller, self.search_alg = controller, SimpleNamespace(searcher=searcher)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._controller, name)

    def stop_trial(self, trial: Trial) -> None:
        """End a paused trial."""
        end_paused(self._controller, trial)


@part("moves", lambda *_: None)
def call_trainable(tune_controller: Any, trial: Trial, method_name: str, *args: Any) -> None:
    """Call a method of a trial's trainable, if the trial has an actor, after the calls that Tune has made.

    Tune (Ray 2.60) calls ``save`` and ``train`` in this way, and has no public way to call other methods.
    """
    controller = getattr(tune_controller, "_tune_controller", tune_controller)
    if trial in controller._trial_to_actor:
        controller._schedule_trial_task(trial=trial, method_name=method_name, args=args)


@part("moves", lambda tune_controller: None)
def end_idle_actors(tune_controller: Any) -> None:
    """End the trial actors that have no trial, unless a trial is about to start.

    Tune (Ray 2.60) keeps one for a trial that may yet be proposed, and its workers keep their devices.
    """
    controller = getattr(tune_controller, "_tune_controller", tune_controller)
    if controller._actor_cache.num_cached_objects and not controller._staged_trials:
        controller._cleanup_cached_actors(force_all=True)
