"""How much longer a sweep of many finished trials takes to go on than a new one takes to start.

A sweep of 500 trials that take no time runs to its end, and is then made longer by one trial, again and again; in
between, new sweeps of one trial run. Both are whole commands on the same MLflow store (an SQLite file). Prints a table
and, last, one JSON object; seconds are medians:

    {"finished": 500, "new_s": ..., "resumed_s": ..., "more_s": ..., "new_wall_s": ..., "resumed_wall_s": ...}

``new_s`` and ``resumed_s`` are from the command to the first report of the trial that was asked for, ``more_s`` is
their difference; the other two are of the whole commands, with the pictures and what MLflow takes at the end. Takes
about 8 minutes on 2 cores.

    python tests/tools/benchmarks/resume.py [--finished 500] [--times 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from gaudi_tune.define.options import PROJECT_ROOT

sys.path[0] = str(PROJECT_ROOT)  # the tests are no package that is installed
from tests.tools.benchmarks.long_sweep import LongSweep

SWEEP = ("--device", "cpu", "--scheduler", "fifo", "--epochs", "1")


class Took(NamedTuple):
    """Seconds of a command: to the first report, and in all."""

    first_s: float
    wall_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--finished", type=int, default=500, help="trials of the sweep that goes on")
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    new, resumed = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        long = LongSweep(folder, f"sqlite:///{folder}/mlflow.db", "finished")
        took = seconds_of(long, "--name", "finished", "--num-samples", str(asked.finished), *SWEEP)
        print(f"{asked.finished} trials in {took.wall_s:.0f} s", flush=True)
        for number in range(asked.times):
            fresh = LongSweep(folder, f"sqlite:///{folder}/mlflow.db", f"new-{number}")
            new.append(seconds_of(fresh, "--name", f"new-{number}", "--num-samples", "1", *SWEEP))
            resumed.append(seconds_of(long, "--resume", "finished", "--add-trials", "1"))
            print(f"new: {new[-1]}, resumed: {resumed[-1]}", flush=True)
    show(new, resumed, asked.finished)


def seconds_of(sweep: LongSweep, *options: str) -> Took:
    """Run the command line, and return how long it took.

    Raises:
        RuntimeError: It failed.
    """
    began, before, first_s = time.monotonic(), sweep.look(), 0.0
    sweep.start(*options)
    try:
        while sweep.running:
            if not first_s and sweep.look() > before:
                first_s = time.monotonic() - began
            time.sleep(0.02)
    finally:
        sweep.end()
    if sweep.driver.wait() or sweep.look() == before:
        raise RuntimeError(sweep.printed.read_text()[-5000:])
    return Took(first_s, time.monotonic() - began)


def show(new: list[Took], resumed: list[Took], finished: int) -> None:
    """Print medians."""
    table = Table("", "to the first report", "the whole command", box=None, pad_edge=False)
    medians = {}
    for name, took in {"new": new, "resumed": resumed}.items():
        medians[f"{name}_s"] = statistics.median(seconds.first_s for seconds in took)
        medians[f"{name}_wall_s"] = statistics.median(seconds.wall_s for seconds in took)
        table.add_row(name, f"{medians[f'{name}_s']:.1f} s", f"{medians[f'{name}_wall_s']:.1f} s")
    Console().print(table)
    medians["more_s"] = medians["resumed_s"] - medians["new_s"]
    print(json.dumps({"finished": finished, **{name: round(seconds, 1) for name, seconds in medians.items()}}))


if __name__ == "__main__":
    main()
