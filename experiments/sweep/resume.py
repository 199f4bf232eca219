"""Tune's state of a sweep: whole copies of it while it runs, and the last of them for one that was interrupted."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from experiments.sweep.errors import SweepError
from experiments.sweep.outcome import number_in, trial_name
from experiments.sweep.search.study_record import STUDY_FILE, stored_trials
from experiments.sweep.tracking.outbox import Outbox

logger = logging.getLogger(__name__)

SNAPSHOTS = "snapshots"
"""Whole copies of Tune's state, in a sweep's folder; Tune's own files there may be torn."""
KEPT = 2
"""Snapshots kept."""
LOOK_EVERY_S = 1.0
"""How often to see whether Tune has written its state."""


def _unpickled(file: Path) -> Any:
    return pickle.loads(file.read_bytes())  # noqa: S301  (of this user's own sweep)


def _with_trials(file: Path) -> Any:
    if not json.loads(file.read_text())["trial_data"]:
        raise ValueError("no trial had begun, and Tune restores no such state")


def _in_the_study(file: Path) -> Any:
    if not json.loads(file.read_text())["flushed"]:
        raise ValueError("it knows of trials that the study's database has not")


STATE_FILES: dict[str, Callable[[Path], Any]] = {
    "experiment_state-*.json": _with_trials,
    "search_gen_state-*.json": _unpickled,  # the ending is Tune's, as the next
    "searcher-state-*.pkl": _in_the_study,
    "callback-states-*.pkl": _unpickled,
}
"""Tune's state, and how to see that a file of it is whole."""


def make_ready(folder: Path, retries: int) -> None:
    """Put Tune's last whole state where Tune looks for it, and take away what came after it.

    Args:
        folder: Of the sweep, wherever it was when the state was written.
        retries: How often Tune starts a trial anew whose actor is lost.

    Raises:
        SweepError: There is none, the study lacks trials, or the sweep runs.
    """
    with closing(Outbox(folder)) as outbox:
        if not outbox.take():
            raise SweepError(f"--resume {folder.name}: this sweep is running; wait for it, or end it first")
        _make_ready(folder, retries)


def _make_ready(folder: Path, retries: int) -> None:
    snapshots = sorted((folder / SNAPSHOTS).glob("[0-9]*"), key=lambda path: int(path.name), reverse=True)
    for state in [*snapshots, folder]:
        if files := whole_state(state):
            break
    else:
        raise SweepError(
            f"--resume {folder.name}: Tune's state in {folder} is missing or torn, and there is no whole snapshot of "
            f"it. What finished is in MLflow and in {folder}; start a new sweep under another name."
        )
    kept = {file.name: file.read_bytes() for file in files}
    for pattern in STATE_FILES:
        for old in folder.glob(pattern):
            old.unlink()
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    _check_study(folder)
    _adapt_trials(folder, retries)
    _adapt_proposals(folder, retries)
    known = {trial_name(number) for number in _numbers_in(folder)}
    for later in folder.glob("trial-*"):
        if later.name not in known:  # it is proposed again, and must not find its own results
            shutil.rmtree(later)


def whole_state(folder: Path) -> list[Path]:
    """Return the files of the state of Tune in ``folder``, the newest of each kind; none if one is missing or torn."""
    files = []
    for pattern, read in STATE_FILES.items():
        newest = max(folder.glob(pattern), default=None)
        if newest is None:
            return []
        try:
            read(newest)
        except (ValueError, EOFError, LookupError, AttributeError, ImportError, pickle.UnpicklingError):
            return []
        files.append(newest)
    return files


def _check_study(folder: Path) -> None:
    """See that the study's database has the trials that the state knows: it would give their numbers to others."""
    (state,) = folder.glob("searcher-state-*.pkl")
    needed, there = json.loads(state.read_text())["length"], len(stored_trials(folder))
    if there < needed:
        raise SweepError(
            f"--resume {folder.name}: its study in {folder / STUDY_FILE} has {there} trials of {needed}; put that file "
            f"back from a backup, or start a new sweep under another name"
        )


def _adapt_trials(folder: Path, retries: int) -> None:
    """Give the trials that are there today's number of retries."""
    (file,) = folder.glob("experiment_state-*.json")
    state = json.loads(file.read_text())
    state["trial_data"] = [
        (json.dumps({**json.loads(trial), "max_failures": retries}), metadata)
        for trial, metadata in state["trial_data"]
    ]
    file.write_text(json.dumps(state))


def _adapt_proposals(folder: Path, retries: int) -> None:
    """Let Tune ask the searcher again, which says itself when it has no more, and give trials to come today's place.

    Tune itself moves the trials that are there alone (Ray 2.60).
    """
    (file,) = folder.glob("search_gen_state-*.json")
    state = _unpickled(file)
    spec = state["experiment"].spec
    spec["storage"].storage_fs_path, spec["storage"].experiment_dir_name = folder.parent.as_posix(), folder.name
    spec["max_failures"] = retries
    file.write_bytes(pickle.dumps({**state, "finished": False}))


def _numbers_in(folder: Path) -> Iterator[int]:
    (state,) = folder.glob("experiment_state-*.json")
    for trial, _ in json.loads(state.read_text())["trial_data"]:
        yield number_in(json.loads(trial)["experiment_tag"])


class KeepSnapshots(tune.Callback):
    """Keeps whole copies of Tune's state: Tune writes its files in place, and a crash leaves torn ones."""

    def __init__(self, folder: Path, *, resumed: bool) -> None:
        """Prepare for a sweep.

        Args:
            folder: Of the sweep.
            resumed: Whether Tune is to read a state first.
        """
        self._folder, self._resumed, self._restored = folder / SNAPSHOTS, resumed, False
        self._copied = 0
        self._looked_at = 0.0

    def setup(self, **info: Any) -> None:
        """See that Tune has read the state: when it cannot, it would silently begin anew.

        Raises:
            SweepError: It has not.
        """
        if self._resumed and not self._restored:
            raise SweepError(
                f"--resume {self._folder.parent.name}: Tune could not read the sweep's state (its error is above); "
                f"its snapshots are as they were: mend what it says, and try again"
            )

    def get_state(self) -> dict[str, Any]:
        """Return what shows that a state was read."""
        return {"kept": True}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned."""
        self._restored = True

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Take away the files that Tune has copied to read its state from them.

        It would copy them back again and again: over the sweep's own files, which are newer by then, and beside its new
        state, which has an older name where the clock was set back.
        """
        if self._restored and trials:
            self._restored, place = False, Path(trials[0].storage.experiment_driver_staging_path)
            for copied in [*place.glob("*.json"), *place.glob("*.pkl")]:
                copied.unlink()

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Copy what Tune has written since the last time."""
        if trials and time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = time.monotonic()
            self._copy(Path(trials[0].storage.experiment_driver_staging_path))

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Copy the last state."""
        if trials:
            self._copy(Path(trials[0].storage.experiment_driver_staging_path))

    def _copy(self, source: Path) -> None:
        # Not the first file of a state, but the last: then the others are there.
        written = max((file.stat().st_mtime_ns for file in source.glob("callback-states-*.pkl")), default=0)
        if written == self._copied or not (files := whole_state(source)):
            return
        try:
            self._keep(files)
        except OSError as error:  # the next may find room
            logger.warning("no snapshot of the sweep could be written (%s)", error)
        else:
            self._copied = written

    def _keep(self, files: list[Path]) -> None:
        self._folder.mkdir(exist_ok=True)
        there = sorted(int(path.name) for path in self._folder.glob("[0-9]*"))
        partial, number = self._folder / "partial", (there[-1] + 1 if there else 1)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for file in files:
            with (partial / file.name).open("xb") as copy:  # on disk before an older one goes: the machine may crash
                copy.write(file.read_bytes())
                os.fsync(copy.fileno())
        partial.rename(self._folder / str(number))
        for old in there[: 1 - KEPT]:
            shutil.rmtree(self._folder / str(old), ignore_errors=True)
