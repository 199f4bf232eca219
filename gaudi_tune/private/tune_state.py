"""The state of a sweep in Ray Tune: what keeps it, how often, and how it is read back."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from gaudi_tune.private.surfaces import part

with suppress(ImportError):
    from ray.tune.utils.serialization import TuneFunctionEncoder
with suppress(ImportError, AttributeError):
    from ray.tune.execution.experiment_state import _ExperimentCheckpointManager

    _write_state = _ExperimentCheckpointManager.sync_up_experiment_state


class StateKeeper(tune.Callback):
    """A callback that keeps the state of its sweep. Tune itself then writes it only at the end of the sweep."""

    @property
    def is_writing(self) -> bool:
        """Whether what it was given last is still being written. Meanwhile it is given more only at the end."""
        return False

    def keep_state(self, trials: Mapping[str, tuple[str, str]], controller: str, search_alg: Any) -> None:
        """Keep the state.

        Args:
            trials: The state of each trial by its id, as Tune writes it: JSON of the trial, and of its run. It is the
                same object until the trial changes.
            controller: The rest of the state, as JSON.
            search_alg: The search algorithm; its ``save_to_dir(folder, session_str)`` writes two files.
        """
        raise NotImplementedError

    def keep_all(self, controller: Any, trials: Sequence[Trial]) -> None:
        """Keep the state where Tune does not give it. Schedulers get the controller in a wrapper."""
        controller = getattr(controller, "_tune_controller", controller)
        state = {"runner_data": controller.__getstate__(), "stats": {"start_time": time.time()}}
        states = {trial.trial_id: trial.get_json_state() for trial in trials}
        self.keep_state(states, json.dumps(state, cls=TuneFunctionEncoder), controller.search_alg)


COPIES_EVERY_S = 30.0
"""Most seconds between two times that Tune copies the reports of trials to the sweep's folder."""


class Paced:
    """Spaces out an activity so that it takes only a share of the time. The pauses have bounds, in seconds."""

    def __init__(self, share: float, pause_s: tuple[float, float] = (0.0, math.inf)) -> None:
        self._share, self._bounds, self._due_at = share, pause_s, 0.0
        self._started_at: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether it may begin."""
        return self._started_at is None and time.monotonic() >= self._due_at

    def begin(self) -> None:
        """Begin."""
        self._started_at = time.monotonic()

    def end(self) -> None:
        """End, if it has begun."""
        if self._started_at is not None:
            ended_at, (shortest, longest) = time.monotonic(), self._bounds
            self._due_at = ended_at + min(max((ended_at - self._started_at) / self._share, shortest), longest)
            self._started_at = None


@part("state", lambda share: None)
def give_state_to_keepers(share: float) -> None:
    """Have Tune, in this process, pass the state of a sweep to its :class:`StateKeeper`, if it has one.

    Tune (Ray 2.60) writes the state of all trials at once, in place, and copies all files of the sweep to its folder
    each time. With ``num_to_keep`` it does so for each checkpoint of a trial, at the next step, after it has waited for
    the previous copies. No setting changes that.

    A keeper gets the state as often, but takes at most a ``share`` of the time. The same holds for the copies, unless
    they would be older than :data:`COPIES_EVERY_S`; a thread makes them, and nothing waits for them. At the end of a
    sweep both happen in any case, and Tune writes its state as well, for Ray's own tools.
    """

    def write_state(self: Any, save_fn: Callable[[], None], force: bool = False, wait: bool = False) -> None:
        controller = save_fn.__self__  # type: ignore[attr-defined]
        callbacks = controller._callbacks._callbacks
        keeper = next((callback for callback in callbacks if isinstance(callback, StateKeeper)), None)
        if keeper is None:
            _write_state(self, save_fn, force=force, wait=wait)
            return

        def keep() -> None:
            controller_state = {
                "runner_data": controller.__getstate__(),
                "stats": {"start_time": controller._start_time},
            }
            controller_json = json.dumps(controller_state, cls=TuneFunctionEncoder)
            keeper.keep_state(controller._get_trial_checkpoints(), controller_json, controller.search_alg)

        if force:
            keep()
            _write_state(self, save_fn, force=True, wait=wait)
            return
        if not hasattr(self, "keeping"):
            self.keeping = Paced(share)
            self.copying = Paced(share, (self._checkpoint_period, COPIES_EVERY_S))
        is_requested = self._should_force_sync_up or time.monotonic() - self._last_save_time >= self._checkpoint_period
        if is_requested and self.keeping.is_due and not keeper.is_writing:
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
    """Return the results of the sweep in ``folder``, from the state of trials that a :class:`StateKeeper` was given."""
    restored = []
    for trial_json, run_json in trials:
        trial = Trial.from_json_state(trial_json, stub=True)
        trial.restore_run_metadata(run_json)
        storage = copy.copy(trial.storage)
        storage.storage_fs_path, storage.experiment_dir_name = folder.parent.as_posix(), folder.name
        trial.set_storage(storage)
        restored.append(trial)
    # Since the trials are given, the file is not read.
    return tune.ResultGrid(tune.ExperimentAnalysis(str(folder / "trials.json"), trials=restored))
