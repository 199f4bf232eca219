"""Tune's files of a sweep: whole copies of them while it runs, and the last of those for one that is resumed.

No other module knows their names and formats (Ray 2.60).
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial

from experiments.sweep.decide.search.study_record import count_trials
from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.plan import STUDY_FILE
from experiments.sweep.on_ray.trials import number_in
from experiments.sweep.state.trial_state import trial_name
from trainables.runtime import names
from trainables.runtime.internals.ray_tune import checkpoints_of, keep_checkpoints

logger = logging.getLogger(__name__)

SNAPSHOTS = "snapshots"
"""Whole copies of Tune's files, in a sweep's folder; Tune's own files there may be torn."""
KEPT = 2
"""Snapshots kept."""
LOOK_EVERY_S = 1.0
"""How often to see whether Tune has written its state."""
SHARE_OF_TIME = 0.05
"""How much of the event loop's time Tune takes at most to write its state, and we to copy it: both grow with the number
of trials."""
OURS = "gaudi-tune"
"""What our part of Tune's callback states is called; Tune itself knows callbacks by their position alone."""


def reports_of(folder: Path, number: int) -> list[dict[str, Any]]:
    """Return the reports of a trial of the sweep in ``folder``; of a step that was reported again, the last."""
    lines = (folder / trial_name(number) / "result.json").read_text().splitlines()
    reports = [json.loads(line) for line in lines]
    return list({report.get(names.STEP, report["training_iteration"]): report for report in reports}.values())


def _trials_in(content: bytes) -> list[int]:
    """Return the numbers of the trials."""
    trials = json.loads(content)["trial_data"]
    if not trials:
        raise ValueError("no trial had begun, and Tune restores no such state")
    return sorted(number_in(json.loads(trial)["experiment_tag"]) for trial, _ in trials)


def _of_searcher(content: bytes) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(content)
    if not state["flushed"]:
        raise ValueError("it knows trials that the study's database does not have")
    return state


def _of_callbacks(content: bytes) -> dict[str, Any]:
    """Return our part of the callbacks' states, wherever among the callbacks it was."""
    states = pickle.loads(content).values()  # noqa: S301  (of this user's own sweep)
    ours: list[dict[str, Any]] = [state[OURS] for state in states if isinstance(state, dict) and OURS in state]
    if len(ours) != 1:
        raise ValueError(f"it has {len(ours)} states of this project, and must have one")
    return ours[0]


STATE_FILES: dict[str, Callable[[bytes], Any]] = {
    "experiment_state-*.json": _trials_in,
    "search_gen_state-*.json": pickle.loads,  # the ending is Tune's, as the next
    "searcher-state-*.pkl": _of_searcher,
    "callback-states-*.pkl": _of_callbacks,
}
"""Tune's state, and how to read a file of it in full."""
UNREADABLE = (
    ValueError, EOFError, LookupError, AttributeError, ImportError, TypeError, OSError, pickle.UnpicklingError,
)  # fmt: skip
"""What reading a file raises that is torn, or of another version of this project or of Ray."""


@dataclass(frozen=True)
class Snapshot:
    """A state of Tune that was read whole."""

    files: dict[str, bytes]
    """Contents by name."""
    ours: dict[str, Any]
    """What :meth:`~experiments.sweep.on_ray.sweep_run.SweepRun.get_state` returned, written at the same moment."""
    trials: list[int]
    """Numbers of its trials."""
    study_length: int
    """Trials that the study had."""


def read_snapshot(folder: Path, see: Callable[[dict[str, Any]], None]) -> Snapshot:
    """Return the newest snapshot of a sweep that can be read in full, and whose part of ours ``see`` takes over.

    Writes nothing. Where there is none, or the study lacks trials, a SweepError says why, and what to do.
    """
    copies = sorted((folder / SNAPSHOTS).glob("[0-9]*"), key=lambda path: int(path.name), reverse=True)
    wrong = []
    for place in [*copies, folder]:
        try:
            snapshot = read(place)
            see(snapshot.ours)
        except UNREADABLE as error:
            wrong.append(f"{place.relative_to(folder.parent)}: {error or type(error).__name__}")
            continue
        _check_study(folder, snapshot)
        return snapshot
    raise SweepError(
        f"--resume {folder.name}: no state of the sweep can be read in full ({'; '.join(wrong)}). Nothing was changed. "
        f"If another version of this project wrote it, resume with that version. Otherwise start a new sweep under "
        f"another name; what finished is in MLflow and in {folder}"
    )


def read(place: Path) -> Snapshot:
    """Return the newest state of Tune in a folder; raises one of :data:`UNREADABLE` if it cannot be read in full."""
    files, found = newest_files(place), []
    for (name, content), see in zip(files.items(), STATE_FILES.values(), strict=True):
        try:
            found.append(see(content))
        except UNREADABLE as error:  # noqa: PERF203
            raise ValueError(f"{name} is torn or of another version ({error!r})") from error
    trials, _, searcher, ours = found
    return Snapshot(files, ours, trials, study_length=int(searcher["length"]))


def newest_files(place: Path) -> dict[str, bytes]:
    """Return the files of the state that Tune wrote last into a folder, by name, in the order of :data:`STATE_FILES`.

    One of :data:`UNREADABLE` if a file is missing or visibly torn: they are not read in full, which takes a second of
    Tune's event loop where there are thousands of trials.
    """
    files = {}
    for pattern in STATE_FILES:
        newest = max(place.glob(pattern), default=None)
        if newest is None:
            raise LookupError(f"{pattern} is missing")
        files[newest.name] = newest.read_bytes()
        if not files[newest.name].endswith((b"}", b".")):  # of JSON, and of a pickle
            raise ValueError(f"{newest.name} is torn")
    return files


def _check_study(folder: Path, snapshot: Snapshot) -> None:
    """See that the study's database has the trials that the snapshot knows: it would give their numbers to others."""
    there = count_trials(folder)
    if there < snapshot.study_length:
        raise SweepError(
            f"--resume {folder.name}: its study, {folder / STUDY_FILE}, has only {there} of the sweep's "
            f"{snapshot.study_length} trials; put that file back from a backup, or start a new sweep under another name"
        )


def put_back(snapshot: Snapshot, folder: Path, retries: int) -> None:
    """Put a snapshot where Tune looks for it, adapted to today, and remove what came after it."""
    if not any((folder / SNAPSHOTS).glob("[0-9]*")):  # what is adapted here is no whole state any more
        keep_copy(snapshot.files, folder / SNAPSHOTS)
    for pattern in STATE_FILES:
        for old in folder.glob(pattern):
            old.unlink()
    trials, proposals, searcher, _ = snapshot.files.values()
    # Tune would hand the states to callbacks by position, and each of ours reads its own from the snapshot.
    adapted = (_with_retries(trials, retries), _at(proposals, folder, retries), searcher, pickle.dumps({None: None}))
    for name, content in zip(snapshot.files, adapted, strict=True):
        (folder / name).write_bytes(content)
    known = {trial_name(number) for number in snapshot.trials}
    for later in folder.glob("trial-*"):
        if later.name not in known:  # it is proposed again, and must not find its own results
            shutil.rmtree(later)


def _with_retries(trials: bytes, retries: int) -> bytes:
    state = json.loads(trials)
    state["trial_data"] = [
        (json.dumps({**json.loads(trial), "max_failures": retries}), metadata)
        for trial, metadata in state["trial_data"]
    ]
    return json.dumps(state).encode()


def _at(proposals: bytes, folder: Path, retries: int) -> bytes:
    """Let Tune ask the searcher again, which says itself when it has no more, and give trials to come today's place.

    Tune itself moves the trials that are there alone.
    """
    state = pickle.loads(proposals)  # noqa: S301  (of this user's own sweep)
    spec = state["experiment"].spec
    spec["storage"].storage_fs_path, spec["storage"].experiment_dir_name = folder.parent.as_posix(), folder.name
    spec["max_failures"] = retries
    return pickle.dumps({**state, "finished": False})


def keep_copy(files: dict[str, bytes], folder: Path) -> None:
    """Write a snapshot beside the earlier ones in ``folder``, whole, and remove all but the last few."""
    folder.mkdir(exist_ok=True)
    there = sorted(int(path.name) for path in folder.glob("[0-9]*"))
    partial, number = folder / "partial", (there[-1] + 1 if there else 1)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name, content in files.items():
        with (partial / name).open("xb") as copy:  # on disk before an older one goes: the machine may crash
            copy.write(content)
            os.fsync(copy.fileno())
    partial.rename(folder / str(number))
    for old in there[: 1 - KEPT]:
        shutil.rmtree(folder / str(old), ignore_errors=True)


class TuneFiles:
    """Keeps whole copies of Tune's files: Tune writes them in place, and a crash leaves torn ones."""

    def __init__(self, folder: Path, *, resumed: bool) -> None:
        self._folder, self._restored = folder / SNAPSHOTS, resumed
        self._copied = 0
        self._look_at = 0.0  # of the monotonic clock

    def settle(self, trials: Sequence[Trial]) -> None:
        """Once Tune has read its state, have it forget checkpoints that are gone, and remove the files that it copied.

        It would fail to delete the one, and copy the other back again and again: over the sweep's own files, which are
        newer by then, and beside its new state, which has an older name where the clock was set back.
        """
        if self._restored and trials:
            self._restored = False
            for trial in trials:
                if not trial.is_finished():
                    self.forget_deleted_checkpoints(trial)
            place = _place_of(trials)
            for copied in [*place.glob("*.json"), *place.glob("*.pkl")]:
                copied.unlink()

    def copy_if_due(self, trials: Sequence[Trial]) -> None:
        """Copy what Tune has written since the last time."""
        began = time.monotonic()
        if began >= self._look_at:
            self.copy(trials)
            self._look_at = began + max(LOOK_EVERY_S, (time.monotonic() - began) / SHARE_OF_TIME)

    def copy(self, trials: Sequence[Trial]) -> None:
        """Copy the state that Tune wrote last, unless that was done or it is not whole."""
        if not trials:
            return
        source = _place_of(trials)
        # Not the first file of a state, but the last: then the others are there.
        written = max((file.stat().st_mtime_ns for file in source.glob("callback-states-*.pkl")), default=0)
        if written == self._copied:
            return
        try:
            files = newest_files(source)
            _, _, searcher, _ = files.values()
            _of_searcher(searcher)
            keep_copy(files, self._folder)
        except OSError as error:  # the next may find room
            logger.warning("no snapshot of the sweep could be written (%s)", error)
        except UNREADABLE:  # it was not written to its end
            pass
        else:
            self._copied = written

    @staticmethod
    def forget_deleted_checkpoints(trial: Trial) -> None:
        """Have Tune forget checkpoints that are gone; only a trial that has ended may lose its last.

        Where the last of another is gone, which a snapshot names, the trial starts again: WarmTrainable sees to it.
        """
        known = checkpoints_of(trial)
        there = [saved for saved in known if Path(saved.checkpoint.path).is_dir()]
        last = trial.latest_checkpoint_result
        last_is_gone = trial.is_finished() and last is not None and not Path(last.checkpoint.path).is_dir()
        if len(there) < len(known) or last_is_gone:
            keep_checkpoints(trial, there, latest=not last_is_gone)


def _place_of(trials: Sequence[Trial]) -> Path:
    """Return the folder to which Tune writes its state first."""
    return Path(trials[0].storage.experiment_driver_staging_path)
