"""The state of a sweep of Ray Tune: who keeps it, how often, and what is read back."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.execution.experiment_state import _ExperimentCheckpointManager
from ray.tune.experiment import Trial
from ray.tune.trainable.metadata import _TrainingRunMetadata
from ray.tune.utils.serialization import TuneFunctionEncoder

_read_metadata, _set_storage = _TrainingRunMetadata.from_json_state, Trial.set_storage
_set_attribute = _TrainingRunMetadata.__setattr__
_write_state = _ExperimentCheckpointManager.sync_up_experiment_state


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
