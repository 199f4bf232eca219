"""What a worker must be told of where this process finds modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from experiments.sweep.define.errors import SweepError
from experiments.sweep.plan.connect import added_to_sys_path, join


@pytest.mark.parametrize("address", ["node-1", "node-1:", ":6379", "node-1:ray"])
def test_an_address_without_a_host_or_a_port_is_an_error(address: str) -> None:
    with pytest.raises(SweepError, match=f"--address {address}: it must be HOST:PORT, such as node-1:6379, or auto"):
        join(address)


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
    found = added_to_sys_path()
    assert {*map(str, others)} <= {*found}
    assert not {*map(str, own)} & {*found}


def test_folders_that_python_adds_itself_at_each_start_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages, editable, other = tmp_path / "lib" / "site-packages", tmp_path / "editable", tmp_path / "other"
    for folder in (packages, editable, other):
        folder.mkdir(parents=True)
        monkeypatch.syspath_prepend(folder)
    (packages / "a.pth").write_text(f"# written by pip\nimport os\n\n{editable}\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    found = added_to_sys_path()
    assert str(other) in found
    assert str(editable) not in found
