"""docs/own-model.md: the whole loop with test data, tried out, and as the confirmation trains it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from tests.helpers.commands import run
from tests.helpers.sessions import reports_of


def test_the_loop_with_test_data_reports_them_where_it_confirms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (PROJECT_ROOT / "docs" / "own-model.md").read_text()
    (code,) = re.findall(r"## Test data\n.*?```python\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "own.py").write_text(code)
    printed = run("python own.py --dry-run --try --device cpu --confirm 1 --seeds 2 --storage results")
    assert "it saved, and continued from there" in printed
    names: dict[str, Any] = {}
    exec(code.partition("\nmain(")[0], names)
    config = {"lr": 1e-3, "hidden": 32, "seed": 1, "epochs": 4, "confirms": 0}
    searched = reports_of(names["train_loop"], config)
    confirmed = reports_of(names["train_loop"], {**config, "confirms": 2}, save_at=2, save_to=tmp_path / "saved")
    assert [set(report) for report in searched] == [{"epoch", "val_accuracy"}] * 4
    assert confirmed[-1]["test_accuracy"] > 0.3
    continued = reports_of(names["train_loop"], {**config, "confirms": 2}, start_from=tmp_path / "saved")
    assert continued == confirmed[2:]
