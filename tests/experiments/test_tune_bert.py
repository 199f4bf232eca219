"""The main job as a user runs it: python experiments/tune_bert.py."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from experiments.sweep.define.options import PROJECT_ROOT

SCRIPT = PROJECT_ROOT / "experiments" / "tune_bert.py"


@pytest.mark.workers
def test_a_sweep_ends_with_a_checkpoint_that_the_printed_line_loads(storage: Path) -> None:
    options = ["--storage", str(storage), "--name", "short", "--num-samples", "4", "--epochs", "3", "--seed", "1"]
    command = [sys.executable, str(SCRIPT), *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=PROJECT_ROOT)
    assert ran.returncode == 0, ran.stderr
    out = ran.stdout
    assert "recipe  sample: there is no accelerator" in out
    assert re.search(r"^\[.*\] trial 001 .* val_accuracy 0\.\d+", out, re.MULTILINE)  # progress in a pipe
    summary = json.loads((storage / "short" / "summary.json").read_text())
    assert summary["best"]["value"] > summary["baseline"] + 0.1
    assert f"checkpoint  {summary['best']['checkpoint']}" in out
    assert summary["mlflow"] in out
    assert re.search(r'^model +import mlflow; .* mlflow\.pyfunc\.load_model\("models:/m-\w+"\)$', out, re.MULTILINE)
    load_it = re.search(r"^load it +(.*)$", out, re.MULTILINE)
    assert load_it is not None
    loaded: dict[str, Any] = {}
    exec(load_it[1], loaded)
    assert sorted(loaded["model"].config.id2label.values()) == [
        "matplotlib", "networkx", "pandas", "sklearn", "sqlalchemy",
    ]  # fmt: skip
    assert not left_behind(str(storage))


def status_of(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    """Run the script in this process, and return its exit status."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options])
    monkeypatch.setattr(ray, "shutdown", lambda: None)  # that of the other tests goes on
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_dry_run_prints_the_plan_and_starts_nothing(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(monkeypatch, "--dry-run", "--storage", str(storage), "--name", "plan") == 0
    printed = capsys.readouterr().out
    for expected in (
        "sweep   plan: 16 trials",
        "recipe  sample",
        "device  cpu",
        "settings  ",
        "trial 001  lr=0.001",
        "at most 144 epochs",
    ):
        assert expected in printed
    assert not (storage / "plan").exists()


def test_bad_input_is_one_line_and_status_2(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(monkeypatch, "--data", "/no/such/data", "--storage", str(storage)) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: --data /no/such/data: no such file or folder")


def left_behind(storage: str) -> list[psutil.Process]:
    """Return processes of the sweep that are still there."""
    return [p for p in psutil.process_iter() if p.pid != os.getpid() and storage in " ".join(_command(p))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize("script", sorted((PROJECT_ROOT / "experiments").glob("tune_*.py")), ids=lambda p: p.stem)
def test_scripts_stay_short(script: Path) -> None:
    assert len(script.read_text().splitlines()) < 60
