"""A process like that of a command, and a script."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

SCRIPT = '''
"""Tune a parabola."""
from gaudi_tune import Experiment, main
from ray import tune
from tests.helpers.loops import quadratic

SMALL = Experiment(name="small", train_loop=quadratic, space={"x": tune.uniform(-1.0, 1.0)}, metric="score")
LARGE = Experiment(name="large", train_loop=quadratic, space={"x": tune.uniform(-9.0, 9.0)}, metric="score")
'''


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is pytest's again after it was a script's."""
    for name, value in (("argv", ["pytest"]), ("path", list(sys.path))):
        monkeypatch.setattr(sys, name, value)
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "my tune.py"
    file.write_text(SCRIPT)
    return file
