"""Checkpoints that a loop writes with some of its reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_tune.base.files import GROUPS_FOLDER
from gaudi_tune.group.last_written_checkpoint import LastWritten, drop_copies
from gaudi_tune.training.session import WrittenCheckpoint


def report(last: LastWritten, folder: Path, epoch: int, *, writes: bool) -> tuple[str, int]:
    """Report an epoch, with a checkpoint or without, as a worker does; return what would be saved, and its age."""
    save = None
    if writes:
        folder.mkdir(exist_ok=True)
        (folder / "epoch").write_text(str(epoch))  # in the same place each time
        save = WrittenCheckpoint(folder)
    to_save, saved = last.to_save(save), folder.parent / f"saved-{epoch}"
    if to_save is not None:
        to_save(saved)
    if save is not None:
        last.copy_written(save)
    return ((saved / "epoch").read_text() if saved.exists() else "", last.behind)


@pytest.mark.parametrize(
    ("writes", "saved"),
    [
        ("1111", [("1", 0), ("2", 0), ("3", 0), ("4", 0)]),
        ("00100100", [("", 0), ("", 0), ("3", 0), ("3", 1), ("3", 2), ("6", 0), ("6", 1), ("6", 2)]),
        ("1000010", [("1", 0), ("1", 1), ("1", 2), ("1", 3), ("1", 4), ("6", 0), ("6", 1)]),
        ("0000", [("", 0)] * 4),
    ],
)
def test_a_report_without_a_checkpoint_has_the_last_one(
    writes: str, saved: list[tuple[str, int]], tmp_path: Path
) -> None:
    copies = tmp_path / GROUPS_FOLDER
    copies.mkdir()
    last = LastWritten(tmp_path / "trial-001", None)
    told = [
        report(last, tmp_path / "loop", epoch, writes=letter == "1") for epoch, letter in enumerate(writes, start=1)
    ]
    assert told == saved
    assert len(list(copies.iterdir())) == (0 if writes in ("1111", "0000") else 1)
    last.forget()
    assert not list(copies.iterdir())


@pytest.mark.parametrize(
    ("writes", "saved"),
    [("010", [("0", 1), ("2", 0), ("2", 1)]), ("110", [("1", 0), ("2", 0), ("", 0)]), ("00", [("0", 1), ("0", 2)])],
)
def test_a_trial_that_continues_has_written_what_it_began_with(
    writes: str, saved: list[tuple[str, int]], tmp_path: Path
) -> None:
    start = tmp_path / "start"
    start.mkdir()
    (start / "epoch").write_text("0")
    last = LastWritten(tmp_path / "trial-001", start)
    assert [
        report(last, tmp_path / "loop", epoch, writes=letter == "1") for epoch, letter in enumerate(writes, start=1)
    ] == saved
    last.forget()
    assert (start / "epoch").exists()


def test_what_a_lost_worker_has_kept_is_in_the_sweep_and_is_dropped(tmp_path: Path) -> None:
    (tmp_path / GROUPS_FOLDER).mkdir()
    for trial in ("trial-001", "trial-002"):
        report(LastWritten(tmp_path / trial, None), tmp_path / "loop", 1, writes=True)  # and its worker is killed
    drop_copies(tmp_path, "trial-001")
    (left,) = (tmp_path / GROUPS_FOLDER).iterdir()
    assert (left / "epoch").read_text() == "1"
    drop_copies(tmp_path)
    assert not [*(tmp_path / GROUPS_FOLDER).iterdir()]
