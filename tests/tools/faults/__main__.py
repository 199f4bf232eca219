"""What happens to sweeps when things go wrong: 31 kinds of fault, each again and again, at random moments.

Sweeps of a tiny train loop run on stand-in HPUs. While all worker groups train, a fault is inflicted at a random
moment, and when all train again, the next. Sweeps whose driver has ended go on with --resume. Afterwards every trial
must have ended with the numbers of an undisturbed one (or failed, if that was the fault, with the reason), its metrics
must be in MLflow once each, and every HPU, process and lock must be free. Prints a table and, last, one JSON object:

    {"kinds": 20, "runs": 100, "lost": 0, "doubled": 0, "leaked": 0}

    python -m tests.tools.faults [KIND ...] [--times 5] [--seed 0] [--scheduler fifo] [--results FILE]

Five times each take an hour and a half on 2 cores; with --results what was found is kept, and what is there is not
done again. Exits with 1 if anything was lost, doubled or leaked. Makes separate file systems
for the faults "disk" and "stalled-disk", which takes root's rights.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

import psutil
from mlflow.utils.mlflow_tags import MLFLOW_GIT_COMMIT
from rich.console import Console
from rich.table import Table

from gaudi_tune.define.options import SchedulerName
from gaudi_tune.show.trackers.sweep_entries import git_state
from tests.helpers.mlflow_server import Server
from tests.tools.faults.check import check
from tests.tools.faults.disk import file_system_that_fills, file_system_that_stalls
from tests.tools.faults.inflict import KINDS, Inflict
from tests.tools.faults.memory_group import JOIN_GROUP, group_with_little_memory
from tests.tools.faults.sweep import GROUPS, Sweep

TRIALS_A_FAULT = 8
"""Enough to last until all groups train again."""
CONFIRMATIONS_A_FAULT = 10
"""The same for the trials of the confirmation."""
WAIT_S = (1.0, 6.0)
"""How long to wait for the next fault, once all groups train."""
FILE_SYSTEMS = {
    "disk": ("results", file_system_that_fills),
    "temporary-disk": ("tmp", file_system_that_fills),
    "tracking-disk": ("mlflow", file_system_that_fills),
    "stalled-disk": ("results", file_system_that_stalls),
    "cgroup-memory": ("results", group_with_little_memory),
}
"""Which folder is mounted, and by what, for the kinds of fault that need a file system or a group of its own."""
OTHER_USER = 12345
"""The number of a user whose processes are counted: those of root are not."""
INSIDE = {
    "cgroup-memory": ("sh", "-c", JOIN_GROUP, "sh"),
    "few-files": ("prlimit", "--nofile=256"),
    "few-processes": (
        *(
            "setpriv",
            f"--reuid={OTHER_USER}",
            "--clear-groups",
            "--inh-caps=+dac_override",
            "--ambient-caps=+dac_override",
        ),
        *("prlimit", "--nproc=1200"),
    ),
    "small-shm": ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m none /dev/shm && exec "$@"', "sh"),
}
"""What runs the sweep under a limit, by the kind of fault: the driver is killed there."""
SWEEP_GB = 8
"""Memory that a sweep may take where the host's is filled, in GiB."""
WHAT = ("lost", "doubled", "leaked")


@dataclass(frozen=True)
class Result:
    """What one kind of fault did."""

    kind: str
    code: str
    """Commit of the code that it was done to."""
    back_after_s: list[float]
    """Seconds until all groups trained again, for each time."""
    faults: dict[str, int]
    """How often something was lost, doubled, leaked."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; none: all")
    parser.add_argument("--times", type=int, default=5, help="faults of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scheduler", choices=get_args(SchedulerName), default="fifo", help="of the sweeps")
    parser.add_argument("--results", type=Path, help="where to keep what was found, a line for each kind")
    asked = parser.parse_args()
    if unknown := set(asked.kinds) - set(KINDS):
        parser.error(f"no such kinds: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of every finally
    print(f"seed {asked.seed}", flush=True)
    found = read_results(asked.results)
    for kind in asked.kinds or KINDS:
        if kind not in found:
            found[kind] = suffered(kind, asked.times, asked.seed, asked.scheduler)
            if asked.results is not None:
                with asked.results.open("a") as file:
                    file.write(json.dumps(asdict(found[kind])) + "\n")
    results = [found[kind] for kind in asked.kinds or KINDS]
    show(results)
    counts = {what: sum(result.faults[what] for result in results) for what in WHAT}
    print(json.dumps({"kinds": len(results), "runs": sum(len(result.back_after_s) for result in results), **counts}))
    if any(counts.values()):
        sys.exit(1)


def read_results(file: Path | None) -> dict[str, Result]:
    """Return what was found before, by kind."""
    lines = file.read_text().splitlines() if file is not None and file.exists() else []
    return {result.kind: result for result in (Result(**json.loads(line)) for line in lines)}


def suffered(kind: str, times: int, seed: int, scheduler: SchedulerName) -> Result:
    """Let sweeps suffer a kind of fault so many times."""
    began, faults = time.monotonic(), Counter(dict.fromkeys(WHAT, 0))
    code = git_state().get(MLFLOW_GIT_COMMIT, "?")  # now: a commit may come while the sweeps run
    back_after: list[float] = []
    while len(back_after) < times:
        missing = times - len(back_after)
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            chance = random.Random(f"{seed} {kind} {missing}")
            done = disturbed(Path(folder), [kind] * missing, chance, faults, scheduler)
        if not done:
            break
        back_after += done
    print(f"{kind}: {times} times in {time.monotonic() - began:.0f} s, {dict(faults)}", flush=True)
    return Result(kind, code, back_after, dict(faults))


def disturbed(
    folder: Path, kinds: Sequence[str], chance: random.Random, faults: Counter[str], scheduler: SchedulerName
) -> list[float]:
    """Run a sweep that suffers these faults in turn, and count what they cost.

    Returns:
        For each fault that was inflicted before the sweep was over, the seconds until all groups trained again.
    """
    kind = kinds[0]
    place, file_system = FILE_SYSTEMS.get(kind, ("results", nullcontext))
    for name in ("results", "tmp", "mlflow"):
        (folder / name).mkdir()
    server = Server(folder / "mlflow")
    done: list[float] = []
    with file_system(folder / place):
        server.start()
        grows, confirms = kind == "growing", kind == "confirming"
        trials = GROUPS if grows or confirms else TRIALS_A_FAULT * (len(kinds) + 1)
        seed = chance.randrange(2**31)
        variables = {"RAY_memory_usage_threshold": memory_limit()} if kind == "host-memory" else {}
        if place == "tmp" or kind == "few-processes":
            variables |= {name: str(folder / "tmp") for name in ("RAY_TMPDIR", "TMPDIR", "HOME")}
        seeds = CONFIRMATIONS_A_FAULT * len(kinds) // 2 if confirms else 0
        sweep = Sweep(
            folder, f"faults-{kind}", server.uri, trials, seed, own_clock=kind == "clock", variables=variables,
            grows=grows, seeds=seeds, inside=INSIDE.get(kind, ()), scheduler=scheduler,
        )  # fmt: skip
        sweep.small_disk = folder / place
        if kind == "few-processes":
            give_away(folder)
        try:
            sweep.start()
            inflict = Inflict(sweep, server, chance)
            for kind in kinds:
                if not sweep.wait_for_all(time.time() if done else 0.0):
                    break
                time.sleep(chance.uniform(*WAIT_S))
                done.append(seconds_of_fault(inflict, kind))
                print(f"  {kind}: all groups train again after {done[-1]:.0f} s", flush=True)
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
    began = time.monotonic()
    KINDS[kind](inflict)
    inflict.sweep.wait_for_all(time.time())  # from now: until it took the order, a trial trained
    return time.monotonic() - began


def give_away(folder: Path) -> None:
    """Let another user have a folder and what is in it."""
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, OTHER_USER, OTHER_USER)


def memory_limit() -> str:
    """Return the part of the host's memory that Ray lets a sweep and what runs already take."""
    memory = psutil.virtual_memory()
    return f"{(memory.total - memory.available + SWEEP_GB * 2**30) / memory.total:.3f}"


def show(results: Sequence[Result]) -> None:
    """Print a table of the faults."""
    columns = ("fault", "times", *WHAT, "back after, median", "longest", "code")
    table = Table(*columns, box=None, pad_edge=False)
    for result in results:
        counts, seconds = [str(result.faults[what]) for what in WHAT], result.back_after_s or [math.nan]
        times = [f"{statistics.median(seconds):.0f} s", f"{max(seconds):.0f} s"]
        table.add_row(result.kind, str(len(result.back_after_s)), *counts, *times, result.code[:7])
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
