"""What a sweep of 1,000 short trials holds on to: descriptors, threads, memory and temporary files.

Counts them for each kind of process after a tenth of the trials and after nine tenths, and prints both. What a sweep
keeps for each trial on purpose, the driver has in memory; all else should stay as it is.

    python -m tests.tools.benchmarks.handles [--trials 1000]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from gaudi_tune.define.options import PROJECT_ROOT
from tests.tools.benchmarks import instant

KINDS = ("raylet/raylet", "gcs_server", "WarmWorker", "Trainable", "fork_server", "Agent", "ray::IDLE", "log_monitor")
COLUMNS = ("processes", "descriptors", "threads", "MB", "files")


def kind_of(process: psutil.Process) -> str:
    """Return what a process of a sweep is."""
    title = " ".join(process.cmdline())
    return next((kind for kind in KINDS if kind in title), "other")


def count(driver: psutil.Process, folders: Mapping[str, Path]) -> dict[str, Counter[str]]:
    """Count what each kind of process holds, and the files in some folders."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for process in (driver, *driver.children(recursive=True)):
        with suppress(psutil.Error):
            kind = "driver" if process == driver else kind_of(process)
            memory = process.memory_full_info().pss >> 20
            found[kind] += Counter(processes=1, descriptors=process.num_fds(), threads=process.num_threads(), MB=memory)
    return {**found, **count_files(folders)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args().trials
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folders = {"temporary files": folder / "tmp", "/dev/shm": Path("/dev/shm")}
        folders["temporary files"].mkdir()
        options = ["--name", "sweep", "--num-samples", str(trials), "--device", "cpu", "--confirm", "0"]
        options += ["--epochs", "1", "--search", "random", "--storage", name]
        with (folder / "printed").open("w") as printed:
            driver = psutil.Popen(
                [sys.executable, "-m", instant.__name__, *options, "--tracking-uri", f"sqlite:///{name}/mlflow.db"],
                cwd=PROJECT_ROOT, env={**os.environ, "TMPDIR": str(folders["temporary files"])}, stdout=printed,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        counts = []
        for goal in (trials // 10, trials * 9 // 10):
            while driver.poll() is None and len([*folder.glob("sweep/trial-*")]) < goal:
                time.sleep(0.05)
            counts.append(count(driver, folders))
        status = driver.wait()
        counts.append(count_files(folders))
        if status:
            print((folder / "printed").read_text())
    show(trials, counts)
    sys.exit(status)


def count_files(folders: Mapping[str, Path]) -> dict[str, Counter[str]]:
    """Count the files in some folders."""
    return {name: Counter(files=sum(1 for _ in folder.rglob("*"))) for name, folder in folders.items()}


def show(trials: int, counts: list[dict[str, Counter[str]]]) -> None:
    """Print a table of what there was after a tenth of the trials, after nine tenths, and after the sweep."""
    table = Table("", *COLUMNS, box=None, pad_edge=False)
    for kind in counts[0]:
        cells = [" ".join(str(each.get(kind, Counter())[column]) for each in counts) for column in COLUMNS]
        table.add_row(kind, *(cell if any(map(int, cell.split())) else "" for cell in cells))
    Console(width=110).print(f"after {trials // 10} trials, after {trials * 9 // 10}, after the sweep", table)


if __name__ == "__main__":
    main()
