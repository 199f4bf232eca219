"""A script is tuned as Python runs it: by its name, as a module of a package, under a profiler, in its own encoding."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_tune.cli.calling_script import calling_script, command_of
from gaudi_tune.define.options import PROJECT_ROOT

TUNED = """
from gaudi_tune import report, tune, tune_script
config = tune_script({"lr": tune.uniform(0.1, 0.9)}, metric="loss")
report({"loss": config["lr"]})
"""
LOOP = """
from gaudi_tune import Experiment, main, report, tune
def train_loop(config):
    report({"loss": config["lr"]})
if __name__ == "__main__":
    main(Experiment(train_loop=train_loop, space={"lr": tune.uniform(0.1, 0.9)}, metric="loss"))
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "file", "how", "name"),
    [
        (TUNED, "pkg/train.py", ["-m", "pkg.train"], "train"),
        (TUNED, "train.py", ["-m", "cProfile", "-o", "profile", "train.py"], "train"),
        (LOOP, "train.py", ["-m", "cProfile", "-o", "profile", "train.py"], "train"),
        (LOOP, "app/__main__.py", ["app"], "app"),
        (TUNED, "app/__main__.py", ["app.zip"], "app"),
    ],
    ids=["module", "profiled", "profiled main", "folder", "archive"],
)
def test_the_script_itself_is_tuned(text: str, file: str, how: list[str], name: str, tmp_path: Path) -> None:
    script = tmp_path / file
    script.parent.mkdir(exist_ok=True)
    script.write_bytes(f"# -*- coding: latin-1 -*-\n# é{text}".encode("latin-1"))
    shutil.make_archive(str(tmp_path / "app"), "zip", script.parent)
    ran = subprocess.run(
        [sys.executable, *how, "--dry-run", "--device", "cpu"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "dry run: all checks passed" in ran.stdout
    assert f"/{name}-" in ran.stdout


def test_the_innermost_script_calls() -> None:
    found = {"calling_script": calling_script}
    code = "found = calling_script()"
    own = {"__name__": "__main__", "__file__": "/somewhere/train.py", **found}
    exec(compile(code, "/somewhere/train.py", "exec"), own)
    assert own["found"] is own
    assert calling_script()["__name__"] == "__main__"


def test_a_module_is_started_again_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["there/train.py", "--epochs", "3"])
    assert command_of({"__spec__": None}) == ["python", "there/train.py"]
    spec = type(sys.__spec__)
    assert command_of({"__spec__": spec("__main__", None)}) == ["python", "there/train.py"]
    assert command_of({"__spec__": spec("pkg.train", None)}) == ["python", "-m", "pkg.train"]
    assert command_of({"__spec__": spec("pkg.__main__", None)}) == ["python", "-m", "pkg"]
