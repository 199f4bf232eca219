"""Ray Tune: which failures it retries, the checkpoints that it knows of a trial, and the state of its PBT scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from ray import tune
from ray.air.execution._internal import RayActorManager
from ray.exceptions import RayActorError, RayTaskError
from ray.tune.experiment import Trial
from ray.tune.impl import tuner_internal
from ray.tune.logger import JsonLoggerCallback
from ray.tune.schedulers import PopulationBasedTraining
from ray.tune.search import Searcher

_handle_error = Trial.handle_error
_actor_task_failed = RayActorManager._actor_task_failed


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


def call_trainable(tune_controller: Any, trial: Trial, method_name: str, *args: Any) -> None:
    """Call a method of a trial's trainable, if the trial has an actor, after the calls that Tune has made.

    Tune (Ray 2.60) calls ``save`` and ``train`` in this way, and has no public way to call other methods.
    """
    controller = getattr(tune_controller, "_tune_controller", tune_controller)
    if trial in controller._trial_to_actor:
        controller._schedule_trial_task(trial=trial, method_name=method_name, args=args)


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
