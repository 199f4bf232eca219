"""The state of a sweep in Ray Tune: what it is, when Tune itself writes it, and how it is read back."""

from __future__ import annotations

import copy
import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from gaudi_tune.private.surfaces import holds, part

with suppress(ImportError):
    from ray.tune.utils.serialization import TuneFunctionEncoder
with suppress(ImportError, AttributeError):
    from ray.tune.execution.experiment_state import _ExperimentCheckpointManager

    _write_state = _ExperimentCheckpointManager.sync_up_experiment_state


class StateKeeper(tune.Callback):
    """A callback that keeps the state of its sweep. Tune itself then writes it only at the end of the sweep."""


def state_in(controller: Any, trials: Sequence[Trial]) -> tuple[Mapping[str, tuple[str, str]], str, Any]:
    """Return the state of a sweep. Schedulers get the controller in a wrapper.

    Returns:
        The state of each trial by its id, as Tune writes it: JSON of the trial, and of its run. It is the same object
        until the trial changes. Then the rest of the state, as JSON; and the search algorithm, whose
        ``save_to_dir(folder, session_str)`` writes two files.
    """
    controller = getattr(controller, "_tune_controller", controller)
    if holds("state"):  # looks only at those that have changed
        states = controller._get_trial_checkpoints()
    else:
        states = {trial.trial_id: trial.get_json_state() for trial in trials}
    rest = {"runner_data": controller.__getstate__(), "stats": {"start_time": time.time()}}
    return states, json.dumps(rest, cls=TuneFunctionEncoder), controller.search_alg


COPIES_SHARE, COPIES_EVERY_S = 0.05, 30.0
"""The share of the time in which Tune copies the reports of trials to the sweep's folder, and the most seconds between
two times."""


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


def _is_copied(source: Path, target: Path) -> bool:
    """Whether each file below a folder is below another one, too, with the same size."""
    for file in source.rglob("*"):
        copied = target / file.relative_to(source)
        if file.is_file() and not (copied.is_file() and copied.stat().st_size == file.stat().st_size):
            return False
    return True


@part("state", lambda: None)
def write_state_at_end() -> None:
    """Have Tune, in this process, write the state of a sweep only at its end if the sweep has a :class:`StateKeeper`.

    Tune (Ray 2.60) writes the state of all trials at once, in place, and copies all files of the sweep to its folder
    each time. With ``num_to_keep`` it does so for each checkpoint of a trial, at the next step, after it has waited for
    the previous copies. No setting changes that.

    The files are still copied, at most as often as Tune's own period says; a thread copies them, and nothing waits for
    it. At the end of a sweep Tune writes its state all the same, for Ray's own tools. What it has copied
    whole is then removed.
    """

    def write_state(self: Any, save_fn: Callable[[], None], force: bool = False, wait: bool = False) -> None:
        callbacks = save_fn.__self__._callbacks._callbacks  # type: ignore[attr-defined]
        is_kept = any(isinstance(callback, StateKeeper) for callback in callbacks)
        if force or not is_kept:
            _write_state(self, save_fn, force=force, wait=wait)
            staging = Path(self._storage.experiment_driver_staging_path)
            # The end. Ray would keep three files of each trial for ever, and Tune only logs a copy that failed.
            if is_kept and wait and _is_copied(staging, Path(self._storage.experiment_fs_path)):
                shutil.rmtree(staging, ignore_errors=True)
            return
        if not hasattr(self, "copying"):
            self.copying = Paced(COPIES_SHARE, (self._checkpoint_period, COPIES_EVERY_S))
        storage, copies = self._storage, self._storage.syncer._sync_process
        if copies is None or not copies.is_running:
            self.copying.end()
            if self.copying.is_due:
                self.copying.begin()
                storage.syncer.sync_up(storage.experiment_driver_staging_path, storage.experiment_fs_path)

    _ExperimentCheckpointManager.sync_up_experiment_state = write_state


def results_of(folder: Path, trials: Iterable[tuple[str, str]], **goal: str) -> tune.ResultGrid:
    """Return the results of the sweep in ``folder``, from the state of trials that a :class:`StateKeeper` was given.

    ``goal`` has the ``default_metric`` and the ``default_mode`` of the best result.
    """
    restored = []
    for trial_json, run_json in trials:
        trial = Trial.from_json_state(trial_json, stub=True)
        trial.restore_run_metadata(run_json)
        storage = copy.copy(trial.storage)
        storage.storage_fs_path, storage.experiment_dir_name = folder.parent.as_posix(), folder.name
        trial.set_storage(storage)
        restored.append(trial)
    # Since the trials are given, the file is not read.
    return tune.ResultGrid(tune.ExperimentAnalysis(str(folder / "trials.json"), trials=restored, **goal))
