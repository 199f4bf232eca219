"""The command line of the main job without a sweep: its plan and its errors (the sweep: test_hpu_sweep.py)."""

from __future__ import annotations

import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from gaudi_tune.define.options import PROJECT_ROOT, SweepOptions
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from tests.helpers.quadratic import QUADRATIC
from tests.helpers.sessions import reports_of
from trainables import bert

SCRIPT = PROJECT_ROOT / "experiments" / "tune_bert.py"


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
        "then trains the best trial and the baseline again in full, with 3 seeds each",
        "recipe  sample: there is no accelerator",
        "device  cpu",
        "settings  epochs=6 data=",
        "trial 001  batch_size=16",
        "at most 168 epochs",
    ):
        assert expected in printed
    assert "nesterov" not in printed  # a default
    assert not (storage / "plan").exists()


def test_bad_input_is_one_line_and_status_2(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(monkeypatch, "--data", "/no/such/data", "--storage", str(storage)) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: --data /no/such/data: no such file or folder")


def test_a_checkpoint_is_scored_as_it_was_when_it_was_written(
    storage: Path, small_trial: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = storage / "checkpoint"
    reports = reports_of(bert.train_loop, small_trial, save_at=2, save_to=checkpoint)
    settings = ("--set", "val_samples=101", "--storage", str(storage))
    assert status_of(monkeypatch, "--evaluate", str(checkpoint), *settings) == 0
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("val_"))
    assert printed == {name: f"{reports[1][name]:.4g}" for name in ("val_loss", "val_accuracy")}
    assert status_of(monkeypatch, "--evaluate", str(storage), *settings) == 2
    assert "there is no checkpoint, or it does not fit the model and classes" in capsys.readouterr().err
    other = make_plan(replace(QUADRATIC, name="vit"), SweepOptions(name="other", storage=storage, device="cpu"))
    other.folder.mkdir()
    write_sweep_file(replace(other, command=("python", "experiments/tune_vit.py")))
    of_other = other.folder / "trial-001" / "checkpoint_000000"
    of_other.mkdir(parents=True)
    assert status_of(monkeypatch, "--evaluate", str(of_other), *settings) == 2
    assert "this is a checkpoint of vit, not of bert; use " in capsys.readouterr().err


@pytest.mark.parametrize("script", sorted((PROJECT_ROOT / "experiments").glob("tune_*.py")), ids=lambda p: p.stem)
def test_scripts_stay_short(script: Path) -> None:
    assert len(script.read_text().splitlines()) < 60
