"""docs/tutorial.md: its files and commands, run in their order."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from tests.helpers.commands import run

PAGE = (PROJECT_ROOT / "docs" / "tutorial.md").read_text()
FILE = re.compile(r"`([\w.]+)`:\n\n```(?:python|toml)\n(.*?)```", re.DOTALL)
"""A file, named before its block."""
COMMANDS = re.compile(r"```\n((?:python|gaudi-tune) .*?)```", re.DOTALL)


def test_the_tutorial_works(ray_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILE.findall(PAGE):
        (tmp_path / name).write_text(text)
    commands = [line.partition("  #")[0] for block in COMMANDS.findall(PAGE) for line in block.splitlines()]
    printed = {command: run(command) for command in commands}
    assert "epoch 9: accuracy 0." in printed["python digits.py"]
    summary = json.loads((tmp_path / "results" / "first" / "summary.json").read_text())
    assert summary["complete"]
    assert sum(summary["counts"].values()) == 15
    assert summary["best"]["value"] > 0.85 > summary["baseline"]
    assert Path(summary["best"]["checkpoint"], "state.pt").is_file()
    assert "confirmed   accuracy" in printed["gaudi-tune show again"]
    assert "over 3 seeds" in printed["gaudi-tune show again"]
    listed = printed["gaudi-tune ls"]
    assert all(f"{name} " in listed for name in ("first", "again"))
