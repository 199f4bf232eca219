"""Whether a node of eight HPUs is kept busy: 64 trials on eight groups of one stand-in HPU, epochs of half a second.

Prints the plan and the sweep's own lines and, last, one JSON object:

    {"occupancy": ..., "double_owners": 0, "leaks": 0, "trials": {...}, "device_seconds": {...}, "peak_pss_gb": ...}

``occupancy`` is the share of the HPUs' time in which a trial had them, from the moment when all groups are up until the
last trial has begun; ``double_owners`` counts acquisitions of an HPU that another process had, ``leaks`` HPUs that were
not given back when the sweep had ended; ``device_seconds`` is the seconds of all HPUs by kind. The trials sleep, so
that eight workers fit on two cores; what is measured is everything around them. Takes 5 minutes on 2 cores, and 16 GB
of memory.

    python tests/tools/benchmarks/packing.py [--trials 64] [--modules 8]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray

from gaudi_tune.define.options import PROJECT_ROOT, SweepOptions
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.sweep.record.device_time import DeviceTime

sys.path.append(str(PROJECT_ROOT))  # the tests are no package that is installed
from tests.helpers.quadratic import STEADY
from tests.helpers.stand_in_hpu import double_owners, environment, ownerships
from tests.tools.benchmarks.processes import TreeMonitor

EPOCH_S = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--modules", type=int, default=8)
    parser.add_argument("--sweep", type=Path, help="run the sweep in this process (used by the benchmark)")
    arguments = parser.parse_args()
    if arguments.sweep:
        print(json.dumps(sweep(arguments.sweep, arguments.trials)))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), arguments)))


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the sweep in a process that finds stand-in HPUs, watch its memory, and look at who had which HPU."""
    command = [sys.executable, __file__, "--sweep", str(folder), "--trials", str(arguments.trials)]
    locks = folder / "locks"
    with subprocess.Popen(
        command,
        env=environment(locks, HABANA_STAND_IN_MODULES=str(arguments.modules)),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        with TreeMonitor(process.pid) as monitor:
            lines = []
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line)
    assert process.returncode == 0, "the sweep failed"
    owned = ownerships(locks)
    used = {ownership.module for ownership in owned}
    assert used == set(range(arguments.modules)), f"only modules {sorted(used)} were used"
    leaks = sum(ownership.until is None for ownership in owned)
    figures: dict[str, Any] = json.loads(lines[-1])
    about = {"double_owners": double_owners(owned), "leaks": leaks, "peak_pss_gb": round(monitor.peak_pss / 1e9, 2)}
    return {**figures, **about}


def sweep(folder: Path, trials: int) -> dict[str, Any]:
    """Run the sweep and return what its devices did."""
    options = SweepOptions(
        num_samples=trials,
        settings=(f"seconds={EPOCH_S}",),
        search="random",
        storage=folder / "results",
        name="packing",
        tracking_uri=f"sqlite:///{folder}/mlflow.db",
    )
    plan = make_plan(STEADY, options)
    print("\n".join(plan_lines(plan)), flush=True)
    tuner = SweepTuner(plan)
    results = tuner.fit()
    device_time = tuner.run.state.device_time
    ray.shutdown()
    assert not results.errors, results.errors
    summary = json.loads(plan.summary_file.read_text())
    return {
        "occupancy": round(occupancy(device_time), 4),
        "trials": summary["counts"],
        "device_seconds": summary["device_seconds"],
        "wall_s": summary["wall_s"],
    }


def occupancy(device_time: DeviceTime) -> float:
    """Return the share of the devices' time that trials had, while all groups were up and trials remained."""
    up: dict[str, float] = {}
    for interval in device_time.intervals:
        up.setdefault(interval.device, interval.trained_from)
    begin, end = max(up.values()), max(interval.began for interval in device_time.intervals)
    had = sum(max(0.0, min(i.ended, end) - max(i.began, begin)) for i in device_time.intervals)
    return had / (len(up) * (end - begin))


if __name__ == "__main__":
    main()
