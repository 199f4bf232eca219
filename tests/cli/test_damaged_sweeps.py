"""Folders of sweeps that are damaged, or that somebody made to harm: each costs its own row in a list, and no more."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gaudi_tune.cli.commands import main
from gaudi_tune.define.sweep_plan import STUDY_FILE, SUMMARY_FILE
from gaudi_tune.sweep.record.lock import LOCK_FILE
from gaudi_tune.sweep.record.state_log import STATE_LOG
from gaudi_tune.sweep.record.sweep_file import SWEEP_FILE
from tests.cli.test_commands import kept


def change(file: str, **values: object) -> Callable[[Path], None]:
    """Return what changes entries of a JSON file."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**content, **values}))

    return damage


def replace_by(file: str, content: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / file).write_bytes(content)

    return damage


def replace_by_pipe(file: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / file).unlink(missing_ok=True)
        os.mkfifo(folder / file)

    return damage


def replace_by_folder(file: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / file).unlink(missing_ok=True)
        (folder / file).mkdir()

    return damage


def damage_value(folder: Path) -> None:
    """Make a value in the study one that is no number, of a sweep that has no summary."""
    (folder / SUMMARY_FILE).unlink()
    with closing(sqlite3.connect(folder / STUDY_FILE)) as study:
        study.execute("UPDATE trial_params SET distribution_json = '{}'")
        study.commit()


DAMAGES = {
    "summary of another shape": change(SUMMARY_FILE, trials={"finished": "two"}, best={"value": []}, confirmation=7),
    "summary that is a list": replace_by(SUMMARY_FILE, b"[]"),
    "summary that is a pipe": replace_by_pipe(SUMMARY_FILE),
    "file without its time": change(SWEEP_FILE, began=float("nan")),
    "file that is torn": replace_by(SWEEP_FILE, b'{"version": '),
    "file that is a pipe": replace_by_pipe(SWEEP_FILE),
    "lock that is a folder": replace_by_folder(LOCK_FILE),
    "lock that is a pipe": replace_by_pipe(LOCK_FILE),
    "study that is no database": replace_by(STUDY_FILE, b"no database"),
    "study with a damaged value": damage_value,
    "log that is a pipe": replace_by_pipe(STATE_LOG),
    "log of zeros": replace_by(STATE_LOG, bytes(100)),
}


@pytest.mark.timeout(60)  # a pipe is waited for, for ever
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_sweep_costs_its_own_row(
    damage: Callable[[Path], None], storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("damaged", "sound"):
        kept(storage, name, 0.1, 0.8, num_samples=2, confirm=0)
    damage(storage / "damaged")
    assert main(["ls", str(storage)]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "2 of 2" in rows["sound"]
    assert "damaged" in rows
    assert main(["show", "damaged", "--storage", str(storage)]) in (0, 2)
    shown = capsys.readouterr()
    assert "Traceback" not in shown.out + shown.err


def test_a_text_in_a_file_commands_no_terminal(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(storage, "done", 0.1, 0.8, num_samples=2, confirm=0)
    change(SUMMARY_FILE, complete=True, failed="\x1b]0;title\x07\x1b[2J")(storage / "done")
    assert main(["show", "done", "--storage", str(storage)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\\x1b]0;title\\x07" in shown
