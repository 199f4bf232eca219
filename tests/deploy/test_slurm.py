"""The job for Slurm, with a program in the place of scontrol, and one in the place of the sweep."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.sweep.record.events import PREEMPTED

pytestmark = pytest.mark.processes

SCRIPT = PROJECT_ROOT / "deploy" / "slurm.sbatch"
SWEEP = f"""
import pathlib, signal, sys, time
said = pathlib.Path("said")
began = said.exists()
said.write_text(" ".join(sys.argv[1:]))
if began:
    sys.exit(0)  # it goes on to its end
signal.signal(signal.SIGUSR1, lambda *_: (time.sleep(0.5), sys.exit({PREEMPTED})))
pathlib.Path("runs").touch()
time.sleep(120)
"""


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Those of a job, with Python and scontrol to be found."""
    (tmp_path / "python").symlink_to(sys.executable)
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "$@" >> requeued\n')
    scontrol.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"}


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_job_with_notice_is_queued_again_and_goes_on(
    number: signal.Signals, variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "sweep.py").write_text(SWEEP)
    command = ["bash", str(SCRIPT), "sweep.py", "--name", "night"]
    with subprocess.Popen(command, cwd=tmp_path, env=variables) as job:
        until = time.monotonic() + 120
        while not (tmp_path / "runs").exists():
            assert time.monotonic() < until, "the sweep has not begun"
            time.sleep(0.05)
        job.send_signal(number)
        assert job.wait() == PREEMPTED
    assert (tmp_path / "requeued").read_text() == "requeue 77\n"
    assert subprocess.run(command, cwd=tmp_path, env=variables, check=False).returncode == 0
    assert (tmp_path / "requeued").read_text() == "requeue 77\n"
    assert (tmp_path / "said").read_text() == "--name night --resume auto --notice 60"


def test_a_sweep_that_fails_is_not_queued_again(variables: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sweep.py").write_text("raise SystemExit(2)")
    done = subprocess.run(["bash", str(SCRIPT), "sweep.py"], cwd=tmp_path, env=variables, check=False)
    assert done.returncode == 2
    assert not (tmp_path / "requeued").exists()
