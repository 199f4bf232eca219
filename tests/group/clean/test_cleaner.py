"""A trial begins in an empty folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaudi_tune.group.clean.cleaner import TrialFolders


def leave(text: str) -> None:
    """Leave a file, a folder and a link to a folder in the current folder."""
    Path("kept.txt").write_text(text)
    Path("checkpoints/last").mkdir(parents=True)
    Path("results").symlink_to("..")


def test_each_trial_begins_in_an_empty_folder_also_when_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # and back after the test
    folders = TrialFolders(tmp_path, may_remove=True)
    places: list[Path] = []
    for trial in ("trial-001", "trial-002", "trial-001"):
        folders.enter_next(trial)
        assert os.listdir() == []
        assert all(place.is_dir() and not any(place.iterdir()) for place in places), "the last one's files only"
        places.append(Path.cwd())
        leave(trial)
    assert len(set(places)) == 3
    assert {place.parent for place in places} == {tmp_path}


def test_a_trial_may_remove_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = TrialFolders(tmp_path, may_remove=True)
    folders.enter_next("trial-001")
    Path.cwd().rmdir()
    folders.enter_next("trial-002")
    assert os.listdir() == []


def test_new_workers_of_a_group_find_nothing_of_the_lost_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    for _ in range(2):
        TrialFolders(tmp_path, may_remove=True).enter_next("trial-001")
        assert os.listdir() == []
        leave("trial-001")
    assert (tmp_path / "own").is_dir()


def test_only_one_of_the_workers_that_share_a_folder_removes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = TrialFolders(tmp_path, may_remove=True), TrialFolders(tmp_path, may_remove=False)
    first.enter_next("trial-001")
    leave("by rank 0")
    second.enter_next("trial-001")
    assert Path("kept.txt").read_text() == "by rank 0"
    second.enter_next("trial-002")
    assert (tmp_path / "0001-trial-001" / "kept.txt").is_file()
    first.enter_next("trial-002")
    assert os.listdir(tmp_path / "0001-trial-001") == []
