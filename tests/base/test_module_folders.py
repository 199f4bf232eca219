"""Which folders of modules a worker must be given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gaudi_tune.base.module_folders import folders_unknown_to_workers


def test_folders_whose_names_begin_like_python_s_own_are_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "venv"
    own = [prefix / "lib" / "python3" / "site-packages", prefix / "local" / "lib" / "dist-packages"]
    others = [tmp_path / "venv-src", prefix / "src"]
    for folder in [*own, *others]:
        folder.mkdir(parents=True)
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    folders = folders_unknown_to_workers()
    assert {*map(str, others)} <= {*folders}
    assert not {*map(str, own)} & {*folders}


def test_folders_that_python_adds_itself_at_each_start_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages, editable, other = tmp_path / "lib" / "site-packages", tmp_path / "editable", tmp_path / "other"
    for folder in (packages, editable, other):
        folder.mkdir(parents=True)
        monkeypatch.syspath_prepend(folder)
    (packages / "a.pth").write_text(f"# written by pip\nimport os\n\n{editable}\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    folders = folders_unknown_to_workers()
    assert str(other) in folders
    assert str(editable) not in folders


def test_an_archive_of_modules_is_passed_on_and_a_path_that_is_not_there_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, gone = tmp_path / "app.zip", tmp_path / "gone.zip"
    archive.touch()
    for path in (archive, gone):
        monkeypatch.syspath_prepend(path)
    assert str(archive) in folders_unknown_to_workers()
    assert str(gone) not in folders_unknown_to_workers()
