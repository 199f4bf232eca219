"""What happens to sweeps when things go wrong: 19 kinds of fault, each again and again, at random moments.

Sweeps of a tiny train loop run on stand-in HPUs. While all worker groups train, a fault is inflicted at a random
moment, and when all train again, the next. Sweeps whose driver has ended go on with --resume. Afterwards every trial
must have ended with the numbers of an undisturbed one (or failed, if that was the fault, with the reason), its metrics
must be in MLflow once each, and every HPU, process and lock must be free. Prints a table and, last, one JSON object:

    {"kinds": 19, "runs": 95, "lost": 0, "doubled": 0, "leaked": 0}

    python -m tests.faults [KIND ...] [--times 5] [--seed 0]

Fills a file system of its own for the fault "disk", which takes root's rights.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from tests.faults.check import check
from tests.faults.inflict import KINDS, Inflict
from tests.faults.sweep import Sweep
from tests.mlflow_server import Server

TRIALS_A_FAULT = 8
"""Enough to last until all groups train again."""
WAIT_S = (1.0, 6.0)
"""How long to wait for the next fault, once all groups train."""
STORAGE_MB = 64
"""Size of the file system that is filled."""
SWEEP_GB = 8
"""Memory that a sweep may take where the host's is filled, in GiB."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; none: all")
    parser.add_argument("--times", type=int, default=5, help="faults of each kind")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if unknown := set(asked.kinds) - set(KINDS):
        parser.error(f"no such kinds: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of every finally
    print(f"seed {asked.seed}", flush=True)
    faults: dict[str, Counter[str]] = defaultdict(Counter)
    back_after: defaultdict[str, list[float]] = defaultdict(list)
    for kind in asked.kinds or KINDS:
        began, missing = time.monotonic(), asked.times
        while missing:
            with tempfile.TemporaryDirectory(prefix="faults-") as folder:
                seed = f"{asked.seed} {kind} {missing}"
                done = disturbed(Path(folder), [kind] * missing, random.Random(seed), faults[kind])
            missing -= len(done)
            back_after[kind] += [seconds for _, seconds in done]
            if not done:
                break
        print(f"{kind}: {asked.times} times in {time.monotonic() - began:.0f} s, {dict(faults[kind])}", flush=True)
    show(back_after, faults)
    in_all = sum(faults.values(), Counter())
    counts = {what: in_all[what] for what in ("lost", "doubled", "leaked")}
    print(json.dumps({"kinds": len(back_after), "runs": sum(map(len, back_after.values())), **counts}))


def disturbed(
    folder: Path, kinds: Sequence[str], chance: random.Random, faults: Counter[str]
) -> list[tuple[str, float]]:
    """Run a sweep that suffers these faults in turn, and count what they cost.

    Returns:
        Each fault that was inflicted before the sweep was over, and the seconds until all groups trained again.
    """
    server = Server(folder)
    server.start()
    done: list[tuple[str, float]] = []
    with storage_of(folder, small="disk" in kinds):
        trials = TRIALS_A_FAULT * (len(kinds) + 1)
        name, seed = f"faults-{kinds[0]}", chance.randrange(2**31)
        limit = {"RAY_memory_usage_threshold": memory_limit()} if "host-memory" in kinds else {}
        sweep = Sweep(folder, name, server.uri, trials, seed, own_clock="clock" in kinds, variables=limit)
        try:
            sweep.start()
            inflict = Inflict(sweep, server, chance)
            for kind in kinds:
                if not sweep.wait_for_all(time.time() if done else 0.0):
                    break
                time.sleep(chance.uniform(*WAIT_S))
                done.append((kind, seconds_of_fault(inflict, kind)))
                print(f"  {kind}: all groups train again after {done[-1][1]:.0f} s", flush=True)
            sweep.finish()
            check(sweep)
        except Exception:
            sweep.count("lost", 1, traceback.format_exc())
        finally:
            sweep.end()
            server.kill()
    if sweep.faults.total():
        print(sweep.printed, flush=True)
    faults.update(sweep.faults)
    return done


def seconds_of_fault(inflict: Inflict, kind: str) -> float:
    """Inflict a fault, wait until all groups train again, and return how long that took."""
    began, clock = time.monotonic(), time.time()
    KINDS[kind](inflict)
    inflict.sweep.wait_for_all(clock)
    return time.monotonic() - began


def memory_limit() -> str:
    """Return the part of the host's memory that Ray lets a sweep and what runs already take."""
    memory = psutil.virtual_memory()
    return f"{(memory.total - memory.available + SWEEP_GB * 2**30) / memory.total:.3f}"


@contextmanager
def storage_of(folder: Path, *, small: bool) -> Iterator[None]:
    """Make the folder for the sweep's results; a small one is a file system of its own."""
    storage = folder / "results"
    storage.mkdir()
    if small:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STORAGE_MB}m", "none", str(storage)], check=True)
    try:
        yield
    finally:
        if small:
            subprocess.run(["umount", "--lazy", str(storage)], check=True)


def show(back_after: dict[str, list[float]], faults: dict[str, Counter[str]]) -> None:
    """Print a table of the faults."""
    columns = ("fault", "times", "lost", "doubled", "leaked", "back after, median", "longest")
    table = Table(*columns, box=None, pad_edge=False)
    for kind, seconds in back_after.items():
        counts = [str(faults[kind][what]) for what in ("lost", "doubled", "leaked")]
        table.add_row(kind, str(len(seconds)), *counts, f"{statistics.median(seconds):.0f} s", f"{max(seconds):.0f} s")
    Console().print(table)


if __name__ == "__main__":
    main()
