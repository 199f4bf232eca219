"""docs/own-model.md: the whole loop with test data, run as a sweep with a confirmation."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_tune.define.options import PROJECT_ROOT


@pytest.mark.workers
def test_the_loop_with_test_data_is_confirmed_on_them(tmp_path: Path) -> None:
    page = (PROJECT_ROOT / "docs" / "own-model.md").read_text()
    (code,) = re.findall(r"## Test data\n.*?```python\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "own.py").write_text(code)
    options = (
        "--num-samples 2 --epochs 4 --confirm 1 --seeds 2 --device cpu --scheduler fifo --storage results --name own"
    )
    ran = subprocess.run(
        [sys.executable, "own.py", *options.split(), "--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "on test data" in ran.stdout
    summary = json.loads((tmp_path / "results" / "own" / "summary.json").read_text())
    assert summary["counts"] == {"finished": summary["counts"]["finished"]}, "no trial failed"
    assert summary["confirmation"]["rivals"][0]["mean"] > 0.3
