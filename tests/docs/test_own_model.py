"""docs/own-model.md: the whole loop with test data, run as a sweep with a confirmation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from tests.helpers.commands import run


def test_the_loop_with_test_data_is_confirmed_on_them(
    ray_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (PROJECT_ROOT / "docs" / "own-model.md").read_text()
    (code,) = re.findall(r"## Test data\n.*?```python\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "own.py").write_text(code)
    printed = run(
        "python own.py --num-samples 2 --epochs 4 --confirm 1 --seeds 2 --device cpu --scheduler fifo "
        "--storage results --name own"
    )
    assert "on test data" in printed
    summary = json.loads((tmp_path / "results" / "own" / "summary.json").read_text())
    assert summary["counts"] == {"finished": summary["counts"]["finished"]}, "no trial failed"
    assert summary["confirmation"]["rivals"][0]["mean"] > 0.3
