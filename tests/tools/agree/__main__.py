"""Compares all places of sweeps of every kind with what their loops wrote down, without kills, with one and with three.

    python -m tests.tools.agree [--kinds WORD ...] [--seeds 4] [--kills 0 1 3]

Groups are simulated; trainables, state, study, MLflow's store and pages are real. Prints each sweep in which a place
is wrong, and the exit status is 1 if there is one. A sweep takes about a second.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.tools.agree.kinds import NAMES, CheckedSweep, kind_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=[""], help="parts of names of kinds")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kills", type=int, nargs="+", default=[0, 1, 3])
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    names = [name for name in NAMES if any(word in name for word in asked.kinds)]
    began, sweeps, wrong = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        uri = f"sqlite:///{folder}/mlflow.db"
        for name in names:
            for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
                for kills in asked.kills:
                    sweep = CheckedSweep(name, kind_of(name), Path(folder) / "results", uri, seed=seed, kills=kills)
                    try:
                        found = sweep.run()
                    except Exception as error:  # a sweep that fails is a finding, too
                        logging.disable(logging.NOTSET)
                        logging.exception("%s", name)
                        logging.disable(logging.CRITICAL)
                        found = [f"it ended with {type(error).__name__}: {error}"]
                    sweeps += 1
                    wrong += bool(found)
                    for line in found:
                        print(f"{name}, seed {seed}, {kills} kills: {line}", flush=True)
    print(f"{sweeps} sweeps of {len(names)} kinds, {wrong} with a wrong number, {time.monotonic() - began:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
