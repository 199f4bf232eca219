"""The study of an earlier sweep is read from its database, whatever the writer left, and nothing is written."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import STUDY_FILE
from gaudi_tune.sweep.search.stored_study import stored_trials, study_address
from tests.cli.test_damaged_sweeps import contents, leave_journal, leave_wal

PRUNED = [TrialState.PRUNED] * 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep's folder with a study of three trials, which were pruned."""
    folder = tmp_path / "results" / "sweep"
    folder.mkdir(parents=True)
    study = optuna.create_study(storage=study_address(folder), study_name=folder.name)
    for _ in PRUNED:
        study.tell(study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}), state=TrialState.PRUNED)
    return folder


@pytest.mark.parametrize(
    ("leave", "states"),
    [
        (lambda folder: None, PRUNED),
        (leave_wal, [TrialState.PRUNED, TrialState.FAIL, TrialState.PRUNED]),
        (leave_journal, PRUNED),
        (lambda folder: folder.chmod(0o555), PRUNED),
        (lambda folder: (folder / STUDY_FILE).write_bytes(b""), []),
        (lambda folder: (folder / STUDY_FILE).unlink(), []),
    ],
    ids=["whole", "log of writes", "journal", "read-only", "empty", "gone"],
)
def test_it_has_what_was_committed(leave: Callable[[Path], object], states: list[TrialState], folder: Path) -> None:
    leave(folder)
    before = contents(folder)
    assert [trial.state for trial in stored_trials(folder)] == states
    assert contents(folder) == before


def test_a_reader_waits_for_no_lock(folder: Path) -> None:
    with closing(sqlite3.connect(folder / STUDY_FILE, isolation_level=None)) as backup:
        backup.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        assert [trial.state for trial in stored_trials(folder)] == PRUNED
        assert time.monotonic() - began < 4, "SQLite waits for 5 s"


def test_a_study_that_is_written_meanwhile_is_read_whole(folder: Path) -> None:
    study = optuna.load_study(study_name=folder.name, storage=study_address(folder))
    ends = threading.Event()

    def write() -> None:
        while not ends.wait(0.01):
            study.add_trial(optuna.create_trial(value=0.5))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        numbers = [[trial.number for trial in stored_trials(folder)] for _ in range(5)]
    finally:
        ends.set()
        writer.join()
    assert all(found == list(range(len(found))) and len(found) >= 3 for found in numbers)


def test_damage_is_an_error_of_one_line(folder: Path) -> None:
    (folder / STUDY_FILE).write_bytes((folder / STUDY_FILE).read_bytes()[:5000])
    with pytest.raises(SweepError, match=rf"^{folder / STUDY_FILE} cannot be read \(.*\); put it back from a backup$"):
        stored_trials(folder)
