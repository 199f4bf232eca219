"""Tune's state of a sweep: whole copies of it while it runs, and the last of them for one that was interrupted."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from experiments.sweep.errors import SweepError
from experiments.sweep.outcome import number_in, trial_name

logger = logging.getLogger(__name__)

SNAPSHOTS = "snapshots"
"""Whole copies of Tune's state, in a sweep's folder; Tune's own files there may be torn."""
KEPT = 2
"""Snapshots kept."""
LOOK_EVERY_S = 1.0
"""How often to see whether Tune has written its state."""


def _unpickled(file: Path) -> Any:
    return pickle.loads(file.read_bytes())  # noqa: S301  (of this user's own sweep)


STATE_FILES: dict[str, Callable[[Path], Any]] = {
    "experiment_state-*.json": lambda file: json.loads(file.read_text()),
    "search_gen_state-*.json": _unpickled,  # the ending is Tune's, as the next
    "searcher-state-*.pkl": lambda file: json.loads(file.read_text()),
    "callback-states-*.pkl": _unpickled,
}
"""Tune's state, and how to see that a file of it is whole."""


def make_ready(folder: Path) -> None:
    """Put Tune's last whole state where Tune looks for it, and take away what came after it.

    Raises:
        SweepError: There is none.
    """
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
    _let_it_propose(folder)
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
        except (ValueError, EOFError, IndexError, AttributeError, pickle.UnpicklingError):
            return []
        files.append(newest)
    return files


def _let_it_propose(folder: Path) -> None:
    """Let Tune ask the searcher again, which says itself when it has no more."""
    for file in folder.glob("search_gen_state-*.json"):
        state = _unpickled(file)
        file.write_bytes(pickle.dumps({**state, "finished": False}))


def _numbers_in(folder: Path) -> Iterator[int]:
    (state,) = folder.glob("experiment_state-*.json")
    for trial, _ in json.loads(state.read_text())["trial_data"]:
        yield number_in(json.loads(trial)["experiment_tag"])


class KeepSnapshots(tune.Callback):
    """Keeps whole copies of Tune's state: Tune writes its files in place, and a crash leaves torn ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / SNAPSHOTS
        self._copied = 0
        self._looked_at = 0.0

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
            shutil.copy(file, partial)
        partial.rename(self._folder / str(number))
        for old in there[: 1 - KEPT]:
            shutil.rmtree(self._folder / str(old), ignore_errors=True)
