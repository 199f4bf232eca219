"""The notice that a machine will be gone: who saves, when, and where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaudi_tune.training import end_notice
from gaudi_tune.training.end_notice import (
    NoticeBoard,
    drop_between,
    give_notice,
    last_between,
    save_between,
    saved_since,
    withdraw_notice,
)


def write(directory: Path) -> None:
    (directory / "state").write_text("whole")


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(end_notice, "LOOK_EVERY_S", 0.0)
    folder = tmp_path / "trial-001"
    folder.mkdir()
    return folder


def test_a_trial_saves_once_for_each_notice_and_only_for_one_to_its_node(trial: Path) -> None:
    board, written = NoticeBoard(trial, "node-1", reports=3), list[Path]()

    def ask() -> int:
        board.save_if_asked(written.append)
        return len(written)

    assert ask() == 0
    give_notice(trial.parent, ["node-2"])
    assert ask() == 0
    give_notice(trial.parent, ["node-2", "node-1"])
    assert (ask(), ask()) == (1, 1)
    give_notice(trial.parent)
    assert (ask(), ask()) == (2, 2)
    withdraw_notice(trial.parent)
    withdraw_notice(trial.parent)
    assert ask() == 2


def test_a_failed_save_costs_the_trial_nothing_else(trial: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(directory: Path) -> None:
        raise OSError("no space left on device")

    give_notice(trial.parent)
    NoticeBoard(trial, "node-1", reports=3).save_if_asked(fail)
    assert "continues from its last checkpoint, because none was saved: no space left on device" in caplog.text
    assert last_between(trial) is None


def test_a_checkpoint_from_a_node_with_a_wrong_clock_counts_as_saved_now(trial: Path) -> None:
    notice_time = give_notice(trial.parent)

    def unpack(directory: Path) -> None:
        write(directory)
        os.utime(directory, (1000.0, 1000.0))

    save_between(trial, 3, unpack)
    assert saved_since(trial, notice_time)


def test_a_worker_looks_for_the_notice_a_few_times_a_second(trial: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_notice, "LOOK_EVERY_S", 1000.0)
    board = NoticeBoard(trial, "node-1", reports=0)
    board.save_if_asked(write)
    give_notice(trial.parent)
    board.save_if_asked(write)
    assert last_between(trial) is None


def test_the_newest_checkpoint_counts_once_it_is_whole(trial: Path) -> None:
    given_at = give_notice(trial.parent)
    assert not saved_since(trial, given_at)
    save_between(trial, 2, write)
    save_between(trial, 10, write)
    assert last_between(trial) == (10, trial / "between_000010")
    assert saved_since(trial, given_at)
    assert (trial / "between_000010" / "state").read_text() == "whole"

    def fail(directory: Path) -> None:
        write(directory)
        raise OSError("the machine is gone")

    with pytest.raises(OSError, match="gone"):
        save_between(trial, 11, fail)
    assert last_between(trial) == (10, trial / "between_000010")
    save_between(trial, 11, write)
    assert last_between(trial) == (11, trial / "between_000011")
    drop_between(trial)
    assert not [*trial.iterdir()]
