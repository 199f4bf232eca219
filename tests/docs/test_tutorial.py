"""docs/tutorial.md: its files and commands, run in their order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from tests.helpers import tutorial


@pytest.mark.workers
@pytest.mark.own_ray
def test_the_tutorial_works(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "from tests.helpers import tutorial; tutorial.main(1)"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    printed = json.loads((tmp_path / "printed.json").read_text())
    assert list(printed) == tutorial.commands()
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
