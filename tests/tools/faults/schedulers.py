"""Each scheduler, with a driver that is killed: a separate sweep each, resumed, and checked as the others are.

    python -m tests.tools.faults.schedulers [NAME ...] [--seed 0]

Prints, last, one JSON object:

    {"schedulers": 6, "lost": 0, "doubled": 0, "leaked": 0}
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import get_args

from gaudi_tune.define.options import SchedulerName
from tests.tools.faults.check import check
from tests.tools.faults.inflict import Inflict
from tests.tools.faults.sweep import Sweep

TRIALS = 10
WAIT_S = (6.0, 14.0)
"""How long to wait for the kill, once all groups train."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of schedulers; none: all")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    names, faults = asked.names or get_args(SchedulerName), Counter(lost=0, doubled=0, leaked=0)
    for name in names:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            sweep = resumed(Path(folder), name, random.Random(f"{asked.seed} {name}"))
        faults.update(sweep.faults)
        print(f"{name}: {time.monotonic() - began:.0f} s, {dict(sweep.faults)}", flush=True)
        if sweep.faults.total():
            print(sweep.printed, flush=True)
    print(json.dumps({"schedulers": len(names), **faults}))


def resumed(folder: Path, scheduler: SchedulerName, chance: random.Random) -> Sweep:
    """Run a sweep whose driver is killed, resume it, and count what that cost."""
    uri, seed = f"sqlite:///{folder}/mlflow.db", chance.randrange(2**31)
    sweep = Sweep(folder, scheduler, uri, TRIALS, seed, scheduler=scheduler)
    try:
        sweep.start()
        sweep.wait_for_all(0.0)
        time.sleep(chance.uniform(*WAIT_S))
        Inflict(sweep, None, chance).driver()
        sweep.wait_for_all(time.time())
        sweep.finish()
        check(sweep)
    finally:
        sweep.end()
    return sweep


if __name__ == "__main__":
    main()
