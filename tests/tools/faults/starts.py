"""Whether sweeps start on a machine that is too busy: three begin in the same second, beside four busy loops.

    python -m tests.tools.faults.starts [--starts 20] [--at-once 3] [--busy 4]

Each is ended with SIGTERM once its Ray runs, and must end as sweeps do. Prints how long each start took and how often
it was tried again, and exits with 1 if one did not start. Twenty took two minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.sweep.record.events import TERMINATED
from tests.tools.benchmarks.instant_trials import busy_processes

SCRIPT = """
from gaudi_tune import Experiment, main, report, tune

def train_loop(config):
    for epoch in range(1000):
        report({"loss": config["x"] ** 2})

main(Experiment(train_loop=train_loop, space={"x": tune.uniform(-1.0, 1.0)}, metric="loss"))
"""
STARTED, AGAIN = "] starting ", "trying again"
"""What a sweep prints once its Ray runs and it has begun, and when Ray has not started."""


def start(folder: Path, number: int) -> subprocess.Popen[str]:
    """Start a sweep."""
    options = ["--name", f"start-{number}", "--device", "cpu", "--num-samples", "1", "--epochs", "1000"]
    return subprocess.Popen(
        [sys.executable, "-u", str(folder / "script.py"), *options, "--storage", str(folder / "results"),
         "--tracking-uri", f"sqlite:///{folder}/mlflow.db"],
        cwd=PROJECT_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def seconds_of_start(sweep: subprocess.Popen[str], began: float) -> float:
    """Return how long a sweep took to start, and end it; infinity if it did not start or did not end well."""
    assert sweep.stdout is not None
    printed, took = "", math.inf
    for line in sweep.stdout:
        printed += line
        if STARTED in line:
            took = time.monotonic() - began
            sweep.send_signal(signal.SIGTERM)
    status, tries = sweep.wait(), 1 + printed.count(AGAIN)
    print(f"  {took:.0f} s, {tries} tries, status {status}, load {os.getloadavg()[0]:.0f}", flush=True)
    if math.isinf(took) or status != TERMINATED:
        print(printed, flush=True)
        return math.inf
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--busy", type=int, default=4)
    asked = parser.parse_args()
    took: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="starts-") as name,
        busy_processes(asked.busy),
        ThreadPoolExecutor(asked.at_once) as threads,
    ):
        folder = Path(name)
        (folder / "script.py").write_text(SCRIPT)
        while len(took) < asked.starts:
            began = time.monotonic()
            count = min(asked.at_once, asked.starts - len(took))
            sweeps = [start(folder, len(took) + number) for number in range(count)]
            took += threads.map(partial(seconds_of_start, began=began), sweeps)
    well = [seconds for seconds in took if math.isfinite(seconds)]
    print(f"{len(well)} of {len(took)} started, in {min(well, default=0):.0f} to {max(well, default=0):.0f} s")
    return int(len(well) < len(took))


if __name__ == "__main__":
    sys.exit(main())
