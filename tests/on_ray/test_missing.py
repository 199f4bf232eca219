"""What the files of a sweep have not got at its end is said, and is written when the sweep goes on."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from gaudi_tune import build_tuner
from gaudi_tune.base.files import STUDY_FILE
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.show.result import exit_status
from gaudi_tune.sweep.record.state_log import read_log
from gaudi_tune.sweep.search.stored_study import stored_trials
from gaudi_tune.sweep.search.study_record import PARTS
from tests.helpers.groups import in_one_group
from tests.helpers.quadratic import QUADRATIC

PLAIN = replace(QUADRATIC, space={"x": tune.uniform(-1.0, 1.0)})
TRIALS = 5
BEGINS_WITHIN_S, ENDS_WITHIN_S = 120, 240
DRIVER = """
from dataclasses import replace
from ray import tune
from gaudi_tune import main
from gaudi_tune.sweep.search import study_record
from tests.helpers.quadratic import QUADRATIC

study_record.GIVE_UP_AFTER_S = 3.0
main(replace(QUADRATIC, space={"x": tune.uniform(-1.0, 1.0)}))
"""


def driver(folder: Path, *options: str) -> subprocess.Popen[str]:
    shared = ("--storage", str(folder), "--tracking-uri", f"sqlite:///{folder}/mlflow.db")
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, *options, *shared],
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.processes
def test_a_study_that_another_process_locks_is_in_the_log_and_the_sweep_says_what_is_missing(tmp_path: Path) -> None:
    folder, locked = tmp_path / "locked", tmp_path / "database-is-locked"
    asked = ("--num-samples", str(TRIALS), "--epochs", "2", "--search", "random", "--scheduler", "fifo")
    settings = ("--set", f"waits_for={locked}", "--confirm", "0")
    first = driver(tmp_path, "--name", "locked", "--device", "cpu", *settings, *asked)
    try:
        until = time.monotonic() + BEGINS_WITHIN_S
        while not stored_trials(folder) and first.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        with closing(sqlite3.connect(folder / STUDY_FILE, timeout=30, isolation_level=None)) as backup:
            backup.execute("BEGIN EXCLUSIVE")
            locked.touch()
            printed, _ = first.communicate(timeout=ENDS_WITHIN_S)
            backup.execute("ROLLBACK")
    finally:
        first.kill()
    assert first.returncode == 1, printed
    assert "optuna.db does not have" in printed
    assert "this writes them: python -c --resume locked" in printed
    assert len(read_log(folder)["tune"]["trials"]) == TRIALS
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["missing"]
    assert summary["counts"] == {"finished": TRIALS}
    assert sum(trial.state.is_finished() for trial in stored_trials(folder)) < TRIALS

    again = driver(tmp_path, "--resume", "locked")
    try:
        printed, _ = again.communicate(timeout=ENDS_WITHIN_S)
    finally:
        again.kill()
    assert again.returncode == 0, printed
    assert [trial.state.is_finished() for trial in stored_trials(folder)] == [True] * TRIALS
    found = json.loads((folder / "summary.json").read_text())
    assert "missing" not in found
    assert found["trials"] == summary["trials"]
    assert not (folder / "set-aside-1").exists(), "no trial was trained again"


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "cut off": lambda file: file.write_bytes(file.read_bytes()[:5000]),
    "overwritten": lambda file: file.write_bytes(file.read_bytes()[:20_000] + bytes(60_000)),
}


def contents(folder: Path) -> list[dict[str, Any]]:
    """What the study of a sweep has in its database."""
    return [{part: getattr(trial, part) for part in PARTS} for trial in stored_trials(folder)]


def test_a_study_that_is_damaged_is_written_again_and_only_what_is_added_is_trained(
    ray_here: None, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {
        "num_samples": 2,
        "epochs": 2,
        "search": "random",
        "scheduler": "fifo",
        "confirm": 0,
        "device": "cpu",
    }
    in_one_group(build_tuner(PLAIN, name="damaged", storage=tmp_path, **asked)).fit()
    folder = tmp_path / "damaged"
    study = contents(folder)
    for number, (kind, damage) in enumerate(DAMAGE.items(), start=len(study) + 1):
        damage(folder / STUDY_FILE)
        tuner = in_one_group(build_tuner(PLAIN, resume="damaged", storage=tmp_path, add_trials=1))
        assert not tuner.fit().errors, kind
        assert tuner.run.summary is not None and exit_status(tuner.run.summary) == 0, kind
        assert contents(folder)[: len(study)] == study, kind
        study = contents(folder)
        assert [trial["state"].is_finished() for trial in study] == [True] * number, kind
        assert not (folder / "set-aside-1").exists(), "no trial was trained again"
        reports = [len(file.read_text().splitlines()) for file in sorted(folder.glob("trial-*/result.json"))]
        assert reports == [2] * number, "each trial was trained once"
