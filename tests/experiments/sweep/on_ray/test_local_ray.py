from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from experiments import SweepError, SweepOptions
from experiments.sweep.define.options import PROJECT_ROOT
from experiments.sweep.on_ray.local_ray import begin_ray, end_ray, start_ray
from experiments.sweep.plan.plan import make_plan
from tests.experiments.sweep.quadratic import QUADRATIC


def test_what_stops_ray_in_the_background_is_raised_where_it_is_waited_for(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*address: str, **more: Any) -> None:
        raise TimeoutError("the machine is busy")

    shut: list[bool] = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", busy)
    monkeypatch.setattr(ray, "shutdown", lambda: shut.append(True))
    plan = make_plan(QUADRATIC, SweepOptions(storage=storage, device="cpu"), when_decided=begin_ray)
    with pytest.raises(SweepError, match=r"Ray did not start on this machine \(the machine is busy\)"):
        start_ray(plan)
    begin_ray(plan)
    end_ray()
    assert shut == [True]
    with pytest.raises(SweepError, match="Ray did not start"):
        start_ray(plan)


@pytest.mark.processes
def test_data_that_cannot_be_used_ends_the_command_and_the_ray_that_was_begun(tmp_path: Path) -> None:
    before = raylets()
    done = subprocess.run(
        [sys.executable, "experiments/tune_bert.py", "--data", str(tmp_path), "--storage", str(tmp_path / "results")],
        cwd=PROJECT_ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: --data {tmp_path}: the folder is empty")
    assert raylets() <= before


def raylets() -> set[int]:
    return {process.pid for process in psutil.process_iter() if process.name() == "raylet"}
