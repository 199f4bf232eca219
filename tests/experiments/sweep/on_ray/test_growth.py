"""Trials that grow, with Tune's own controller: the groups are simulated, on a clock that jumps."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from experiments.sweep.define.options import PROJECT_ROOT

BENCHMARK = PROJECT_ROOT / "tests" / "benchmarks" / "growth.py"


@pytest.mark.processes
def test_idle_devices_train_with_those_that_run_and_are_given_back() -> None:
    """A group that does not get the devices that it was promised ends the benchmark."""
    command = [sys.executable, str(BENCHMARK), "--simulated", "1", "--trials", "16", "--scheduler", "asha-promote"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(ran.stdout.splitlines()[-1])
    assert figures["time_ratio"] < 0.9
    assert figures["occupancy"] > figures["occupancy_without"] + 0.1
