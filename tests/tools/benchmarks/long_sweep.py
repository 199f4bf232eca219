"""A long sweep in a bad network: 500 trials of 10 epochs, while MLflow's server is killed twice and the driver once.

The sweep is started from the command line, in processes of its own, and logs to the team's server. At random moments
the server is killed with its PostgreSQL and started again some seconds later; at another the driver is killed with -9
and the sweep resumed. Afterwards every value must be in MLflow, and there once. Prints how far it is and, last, one
JSON object:

    {"trials": 500, "values": 15000, "missing": 0, "doubled": 0, "doubled_runs": 0, "wall_s": ...}

    python tests/tools/benchmarks/long_sweep.py [--trials 500] [--epochs 10] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

sys.path[0] = str(Path(__file__).resolve().parents[3])
from gaudi_tune.base.files import OUTBOX_FILE
from gaudi_tune.define.options import PROJECT_ROOT
from tests.helpers.deliveries import count_delivered
from tests.helpers.team_server import PASSWORDS, Bucket, TeamServer, sign_in, team_server

NAME = "long"
METRICS = ("score", "train_loss", "noise")
DRIVER = f"""
from dataclasses import replace
from ray import tune
from gaudi_tune import main
from tests.helpers.quadratic import QUADRATIC
main(replace(QUADRATIC, name="{NAME}", space={{"x": tune.uniform(-1.0, 1.0)}}))
"""
"""The command line of an experiment whose trials take no time, and go wrong in no way."""
FAULTS = ("server", "server", "driver")
AWAY_S = (5.0, 40.0)
"""For how long a server that was killed is away."""
TELL_EVERY_S = 30


class LongSweep:
    """The sweep of the command line."""

    def __init__(self, folder: Path, uri: str, name: str = NAME) -> None:
        self._folder, self._uri = folder, uri
        self.printed = folder / f"{name}.txt"
        self._records = folder / name / OUTBOX_FILE
        self._read, self.reported = 0, 0

    def start(self, *options: str) -> None:
        command = [sys.executable, "-c", DRIVER, "--storage", str(self._folder), "--tracking-uri", self._uri]
        with self.printed.open("ab") as printed:
            self.driver = psutil.Popen(
                [*command, *options],
                env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
                stdout=printed,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """Kill the driver, and wait until everything that it started has noticed."""
        # Ray's own agents notice a raylet's end after minutes.
        below = [p for p in self.driver.children(recursive=True) if not p.name().endswith("Agent")]
        self.driver.kill()
        self.driver.wait()
        _, alive = psutil.wait_procs(below, timeout=120)
        assert not alive, "the processes of a killed driver stay"

    def end(self) -> None:
        """Leave nothing behind."""
        if self.running:
            self.kill()

    @property
    def running(self) -> bool:
        return self.driver.poll() is None

    def look(self) -> int:
        """Return how many reports are written down."""
        with suppress(FileNotFoundError), self._records.open("rb") as records:
            records.seek(self._read)
            more = records.read()
            whole = more.rfind(b"\n") + 1
            self._read += whole
            self.reported += more[:whole].count(b'"score": ')
        return self.reported


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    bucket = Bucket()
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            pytest.MonkeyPatch.context() as patch,
            team_server(bucket) as server,
        ):
            sign_in(patch, "ada", PASSWORDS["ada"])
            sweep = LongSweep(Path(folder), server.uri)
            began = time.monotonic()
            try:
                disturb(sweep, server, asked)
            finally:
                sweep.end()
            wall_s = round(time.monotonic() - began)
            assert sweep.driver.wait() == 0, sweep.printed.read_text()[-5000:]
            found = count_delivered(server.uri, NAME, NAME, asked.trials, asked.epochs, METRICS)
            print(json.dumps({**found, "wall_s": wall_s}))
    finally:
        bucket.close()


def disturb(sweep: LongSweep, server: TeamServer, asked: argparse.Namespace) -> None:
    """Run the sweep to its end, and kill what is to be killed when so many reports have come."""
    chance, reports = random.Random(asked.seed), asked.trials * asked.epochs
    faults = sorted((chance.randrange(reports // 20, reports * 9 // 10), what) for what in FAULTS)
    options = ("--num-samples", str(asked.trials), "--epochs", str(asked.epochs))
    sweep.start("--name", NAME, "--device", "cpu", "--scheduler", "fifo", *options)
    began = told = time.monotonic()
    while sweep.running:
        if time.monotonic() - told > TELL_EVERY_S:
            told = time.monotonic()
            print(f"[{told - began:4.0f} s] {sweep.look()} of {reports} reports", flush=True)
        if faults and sweep.look() >= faults[0][0]:
            _, what = faults.pop(0)
            print(f"[{time.monotonic() - began:4.0f} s] killing the {what} after {sweep.reported} reports", flush=True)
            if what == "server":
                server.kill()
                time.sleep(chance.uniform(*AWAY_S))
                print(f"  it answered again {server.start():.0f} s after its new start", flush=True)
            else:
                sweep.kill()
                sweep.start("--resume", NAME)
        time.sleep(1)
    assert not faults, f"the sweep was over before {faults}:\n{sweep.printed.read_text()[-3000:]}"


if __name__ == "__main__":
    main()
