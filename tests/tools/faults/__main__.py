"""What happens to sweeps when things go wrong: 32 kinds of fault, each again and again, at random moments.

Sweeps of a tiny train loop run on stand-in HPUs. While all worker groups train, a fault is inflicted at a random
moment, and when all train again, the next. Sweeps whose driver has ended go on with --resume. Afterwards every trial
must have ended with the numbers of an undisturbed one (or failed, if that was the fault, with the reason), its metrics
must be in MLflow once each, and every HPU, process and lock must be free. Prints a table and, last, one JSON object:

    {"kinds": 20, "runs": 100, "lost": 0, "doubled": 0, "leaked": 0}

    python -m tests.tools.faults [KIND ...] [--times 5] [--seed 0] [--scheduler fifo]

Five times each take two hours on 2 cores. Exits with 1 if anything was lost, doubled or leaked. Makes separate file
systems for the faults "disk" and "stalled-disk", which takes root's rights.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import psutil

from gaudi_tune.define.options import SchedulerName
from tests.helpers.mlflow_server import Server
from tests.tools.fault_report import Result, conclude, parsed
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scheduler", choices=get_args(SchedulerName), default="fifo", help="of the sweeps")
    asked = parsed(parser, KINDS, times=5)
    print(f"seed {asked.seed}", flush=True)
    conclude([suffered(kind, asked.times, asked.seed, asked.scheduler) for kind in asked.kinds])


def suffered(kind: str, times: int, seed: int, scheduler: SchedulerName) -> Result:
    """Let sweeps suffer a kind of fault so many times."""
    began, faults = time.monotonic(), Counter[str]()
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
    median, longest = (statistics.median(back_after), max(back_after)) if back_after else (math.nan, math.nan)
    columns = {"back after, median": f"{median:.0f} s", "longest": f"{longest:.0f} s"}
    return Result(kind, len(back_after), faults, columns)


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


if __name__ == "__main__":
    main()
