"""Run a sweep without each private surface of ``gaudi_tune/private/surfaces.ini``, and one without all that can be off.

Each surface is taken away by its name (``GAUDI_TUNE_STOCK``), in every process of a sweep whose trials save, pause and
continue. Every place must then have the numbers that the loops wrote down (``tests.tools.agree.real``); or, where the
sweep would lose work, the plan must refuse with the versions that were tested. The one without all is killed, resumed,
interrupted with Ctrl-C, and resumed again. Prints a line for each, and ends with status 1 if one is wrong. About 25 s
each on 2 cores.

    python -m tests.tools.losses [NAME ...]    # 1: the one without all
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from gaudi_tune.private.surfaces import ANY_VERSION, STOCK, SURFACES, tested
from tests.tools.agree.real import RealKind, RealSweep

ALL = "1"
"""Takes away all that a sweep can do without."""
SMALL = {"num-samples": "4", "epochs": "3"}


def main() -> int:
    """Run the sweeps, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[ALL, *SURFACES], metavar="NAME")
    status = 0
    for name in parser.parse_args().names:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            problems = without(name, Path(folder))
        print(f"{name:18} {time.monotonic() - began:4.0f} s  {'; '.join(problems) or 'right'}", flush=True)
        status |= bool(problems)
    return status


def sweep_without(name: str, folder: Path, *, workers: int = 1, any_version: bool = False) -> RealSweep:
    """Return a small sweep without a surface, which has yet to begin."""
    variables = {STOCK: name, **({ANY_VERSION: "1"} if any_version else {})}
    return RealSweep(folder, "loop", RealKind(options={**SMALL, "workers-per-trial": str(workers)}), **variables)


def without(name: str, folder: Path) -> list[str]:
    """Run a sweep without a surface, and return what is wrong with it."""
    if name == ALL:
        kind = RealKind()  # it is still running when it is interrupted
        sweep = RealSweep(folder, "loop", kind, **{STOCK: ALL})
        return sweep.run(random.Random(0), [signal.SIGKILL, signal.SIGINT])
    surface = SURFACES[name]
    if surface.fallback:
        sweep = sweep_without(name, folder)
        wrong = sweep.run(random.Random(0))
        return wrong if f"{name} is off" in sweep.printed else [*wrong, "the plan does not name it"]
    refused = sweep_without(name, folder / "refused")
    refused.begin()
    status, printed = refused.ended_with(), refused.printed
    if status != 2 or name not in printed or tested(surface.library) not in printed:
        return [f"the plan does not refuse: status {status}, {printed}"]
    return sweep_without(name, folder, any_version=True).run(random.Random(0))


if __name__ == "__main__":
    sys.exit(main())
