"""The main job as a user runs it: python experiments/tune_bert.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from experiments.sweep.options import PROJECT_ROOT

SCRIPT = PROJECT_ROOT / "experiments" / "tune_bert.py"


def run_script(*options: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd=PROJECT_ROOT)


def test_a_sweep_ends_with_a_checkpoint_that_the_printed_line_loads(storage: Path) -> None:
    ran = run_script("--storage", str(storage), "--name", "short", "--num-samples", "4", "--epochs", "3", "--seed", "1")
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
    code = f"{load_it[1]}; print(sorted(model.config.id2label.values()))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "['matplotlib', 'networkx', 'pandas', 'sklearn', 'sqlalchemy']"
    assert not left_behind(str(storage))


def test_a_dry_run_prints_the_plan_and_starts_nothing(storage: Path) -> None:
    ran = run_script("--dry-run", "--storage", str(storage), "--name", "plan")
    assert ran.returncode == 0, ran.stderr
    for expected in (
        "sweep   plan: 16 trials",
        "recipe  sample",
        "device  cpu",
        "settings  ",
        "trial 001  lr=0.001",
        "at most 144 epochs",
    ):
        assert expected in ran.stdout
    assert not (storage / "plan").exists()


def test_bad_input_is_one_line_and_status_2(storage: Path) -> None:
    ran = run_script("--data", "/no/such/data", "--storage", str(storage))
    assert ran.returncode == 2
    assert ran.stderr.strip().splitlines()[-1].startswith("error: --data /no/such/data: no such file or folder")
    assert "Traceback" not in ran.stderr


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
