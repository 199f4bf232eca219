"""The command line of the main job without a sweep: its plan and its errors (the sweep: test_hpu_sweep.py)."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import ray

from gaudi_tune.define.options import PROJECT_ROOT

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


@pytest.mark.parametrize("script", sorted((PROJECT_ROOT / "experiments").glob("tune_*.py")), ids=lambda p: p.stem)
def test_scripts_stay_short(script: Path) -> None:
    assert len(script.read_text().splitlines()) < 60
