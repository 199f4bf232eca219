"""What listens while a sweep runs, as the table in SECURITY.md has it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from gaudi_tune.define.options import PROJECT_ROOT

pytestmark = [pytest.mark.processes, pytest.mark.own_ray]

SWEEP = """
from torch import distributed, ones
from gaudi_tune import Experiment, main, report, tune

def train_loop(config):
    for epoch in range(1, config["epochs"] + 1):
        total = ones(1)
        distributed.all_reduce(total)
        report({"loss": config["x"] ** 2 + float(total)})

main(Experiment(train_loop=train_loop, space={"x": tune.uniform(-1.0, 1.0)}, metric="loss"))
"""


def listeners(process: psutil.Process) -> set[tuple[str, str]]:
    """The addresses on which the processes of a sweep listen now, and what Ray calls the process."""
    found = set()
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            title = " ".join(each.cmdline())
            kind = next((name for name in ("raylet/raylet", "gcs_server", "ray::", "agent") if name in title), "driver")
            found |= {
                (kind, socket.laddr.ip.removeprefix("::ffff:"))
                for socket in each.net_connections()
                if socket.status == psutil.CONN_LISTEN
            }
    return found


def test_a_sweep_listens_on_loopback_alone(tmp_path: Path) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP)
    options = ["--workers-per-trial", "2", "--num-samples", "2", "--epochs", "20", "--device", "cpu", "--confirm", "0"]
    command = [sys.executable, str(script), *options, "--storage", str(tmp_path / "results")]
    found: set[tuple[str, str]] = set()
    with subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as sweep:
        while sweep.poll() is None:
            found |= listeners(psutil.Process(sweep.pid))
            time.sleep(0.1)
        assert sweep.stdout is not None
        assert sweep.returncode == 0, sweep.stdout.read().decode()
    assert {address for _, address in found} == {"127.0.0.1"}, found
    assert {"driver", "raylet/raylet", "gcs_server", "ray::"} <= {kind for kind, _ in found}
    table = (PROJECT_ROOT / "SECURITY.md").read_text()
    for listener in ("the live page of a sweep", "Ray, started by a sweep", "torch, in the workers of a sweep"):
        assert re.search(rf"\| {listener}.* \| 127\.0\.0\.1, ", table)
