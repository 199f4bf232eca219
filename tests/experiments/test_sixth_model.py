"""A model is added as docs/own-model.md says: three files, nothing else, and a loop as Ray's documentation has it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_tune.define.options import PROJECT_ROOT

pytestmark = [pytest.mark.workers, pytest.mark.own_ray]

FILES = ("trainables/line.py", "search_spaces/line.py", "experiments/tune_line.py")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The models of this project in a folder of the test's own, and the three files as the page has them."""
    for package in ("experiments", "search_spaces", "trainables"):
        shutil.copytree(PROJECT_ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    page = (PROJECT_ROOT / "docs" / "own-model.md").read_text()
    for file in FILES:
        (code,) = re.findall(rf"^`{file}`.*?^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
        (tmp_path / file).write_text(code)
    return tmp_path


def test_three_files_make_a_sweep_whose_trials_go_on_from_their_checkpoints(project: Path) -> None:
    options = ["--name", "sixth", "--storage", "results", "--device", "cpu", "--workers-per-trial", "2"]
    script = [sys.executable, "experiments/tune_line.py", *options, "--scheduler", "asha-promote"]  # which pauses
    done = subprocess.run(
        script,
        cwd=project,
        env={**os.environ, "PYTHONPATH": f"{project}:{PROJECT_ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((project / "results" / "sixth" / "summary.json").read_text())
    assert set(summary["counts"]) == {"finished", "stopped early"}
    assert summary["experiment"] == "line"
    assert summary["best"]["value"] < summary["baseline"]
    assert summary["best"]["epoch"] == 3
    assert (Path(summary["best"]["checkpoint"]) / "state.pt").is_file()
