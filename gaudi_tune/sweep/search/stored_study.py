"""Reading the study of an earlier sweep, or of one that runs, from its database. Nothing is written there."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as StudyState

from gaudi_tune.base.errors import SweepError, first_line
from gaudi_tune.base.files import STUDY_FILE, open_regular_file
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.trial_proxy import hyperparameter
from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.record.events import Outcome
from gaudi_tune.sweep.search.sampler_view import ATTR_FAILURE, ATTR_POINT, best_report
from gaudi_tune.sweep.search.study_trial import number_in_sweep

PARTS_OF_DATABASE = ("", "-journal", "-wal")
"""What follows the database's name in the names of its files: SQLite recovers from the others what a killed process
was writing."""
MAX_BYTES = 4 * 2**30
"""The largest file of a database that is copied."""
MAX_COPIES = 50
"""How often a database is copied until nobody has written to it meanwhile."""
COPY_AGAIN_AFTER_S = 0.1
"""Seconds until the next copy: a transaction that is being written takes a moment."""
OUTCOMES: dict[StudyState, Outcome] = {
    StudyState.COMPLETE: "finished",
    StudyState.PRUNED: "stopped early",
    StudyState.FAIL: "failed",
}
"""The outcomes that a study's states mean; a trial in any other state has not ended."""


def study_address(folder: Path) -> str:
    """Return the address of the study's database, which is in the sweep's folder."""
    return f"sqlite:///{folder / STUDY_FILE}"


def stored_trials(folder: Path) -> list[FrozenTrial]:
    """Return the trials that the study of a sweep has in its database; none if the database or the study is gone.

    Raises:
        SweepError: The database cannot be read.
    """
    try:
        with _copy_of_database(folder / STUDY_FILE) as copy:
            return _trials_in(copy, folder.name)
    except FileNotFoundError:
        return []
    except Exception as error:  # a file of any content: each kind of damage raises its own
        raise SweepError(
            f"{folder / STUDY_FILE} cannot be read ({first_line(error)}); put it back from a backup"
        ) from error


@contextmanager
def _copy_of_database(file: Path) -> Iterator[Path]:
    """Yield a copy of a database, which lasts for the block.

    SQLite itself would write beside the database, to recover what a killed process left, and wait for a lock; and
    Optuna would write its tables into an empty one.
    """
    with TemporaryDirectory() as folder:
        copy = Path(folder, STUDY_FILE)
        for _ in range(MAX_COPIES):
            versions = _versions(file)
            for part in PARTS_OF_DATABASE:
                _copy_if_there(Path(f"{file}{part}"), Path(f"{copy}{part}"))
            if _versions(file) == versions:
                break
            time.sleep(COPY_AGAIN_AFTER_S)
        else:
            raise OSError("another process writes to it all the time")
        if not copy.is_file():
            raise FileNotFoundError(file)
        yield copy


def _versions(file: Path) -> list[tuple[int, int, int] | None]:
    """Return what tells whether the files of a database have changed."""
    versions: list[tuple[int, int, int] | None] = []
    for part in PARTS_OF_DATABASE:
        try:
            status = os.lstat(f"{file}{part}")
            versions.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except FileNotFoundError:  # noqa: PERF203  (three files)
            versions.append(None)
    return versions


def _copy_if_there(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        with open_regular_file(source) as original, target.open("wb") as copy:
            if os.fstat(original.fileno()).st_size > MAX_BYTES:
                raise OSError(f"{source} has more than {MAX_BYTES / 2**30:.0f} GB")
            shutil.copyfileobj(original, copy)
    except FileNotFoundError:
        target.unlink(missing_ok=True)


def _trials_in(file: Path, study_name: str) -> list[FrozenTrial]:
    """Return the trials of a study; none if the database does not have it."""
    with closing(sqlite3.connect(file)) as database:
        # A view may compute for ever, and a virtual table, too: Optuna makes neither.
        query = "SELECT name FROM sqlite_master WHERE type NOT IN ('table', 'index') OR sql LIKE 'create virtual%'"
        if foreign_row := database.execute(query).fetchone():
            raise ValueError(f"{foreign_row[0]!r} in it is no table of Optuna's")
    # The check of the version takes as long as all else, and another version is an error without it, too.
    storage = RDBStorage(f"sqlite:///{file}", skip_compatibility_check=True)
    try:
        study = optuna.load_study(study_name=study_name, storage=storage)
    except KeyError:
        return []
    try:
        trials = study.get_trials(deepcopy=False)
        for trial in trials:
            number_in_sweep(trial)  # which a damaged attribute makes impossible
        return trials
    finally:
        internals.close(study)


def config_of_trial(folder: Path, number: int) -> dict[str, Any]:
    """Return the hyperparameters of a trial of the search of a sweep, for ``--baseline``.

    Raises:
        SweepError: The search has no such trial.
    """
    trials = {number_in_sweep(trial): trial for trial in stored_trials(folder)}
    if number not in trials:
        numbers = f"1 to {max(trials)}, without those that confirm" if trials else "none"
        raise SweepError(f"--baseline {folder.name}:{number}: its search has no such trial; it has {numbers}")
    return {hyperparameter(name): value for name, value in trials[number].params.items()}


def trial_summaries(
    trials: Sequence[FrozenTrial], objective: Objective, paused: Container[int] = ()
) -> list[dict[str, Any]]:
    """Return what a list shows of the trials of a study: how each ended, its best report, and its configuration.

    Args:
        trials: The trials of the study.
        objective: The objective by which a report is best.
        paused: Trials that wait, which the study does not know.
    """
    return [_trial_summary(trial, objective, is_paused=number_in_sweep(trial) in paused) for trial in trials]


def _trial_summary(trial: FrozenTrial, objective: Objective, *, is_paused: bool) -> dict[str, Any]:
    best_step, best_value = best_report(trial, objective) or (None, None)
    point = trial.user_attrs.get(ATTR_POINT)
    if point is not None and trial.state == StudyState.FAIL:
        best_value = point[0] if point else None
        best_step = min(
            (step for step, value in trial.intermediate_values.items() if [value] == point[:1]), default=None
        )
    summary: dict[str, Any] = {
        "trial": number_in_sweep(trial),
        "status": OUTCOMES.get(trial.state, "paused" if is_paused else "interrupted"),
        "value": best_value,
    }
    if point and len(point) > 1:
        summary["point"] = list(point)
    if ATTR_FAILURE in trial.user_attrs:
        summary["why"] = str(trial.user_attrs[ATTR_FAILURE])
    summary["at"] = best_step
    summary["config"] = {hyperparameter(name): value for name, value in trial.params.items()}
    return summary
