"""Whether trials leave memory behind in the workers: 200 trials of the sample recipe through one warm worker group.

Prints the memory of the worker after every tenth trial and, last, one JSON object; ``growth`` is from the tenth trial
to the last, 0.05 meaning 5 %. Takes about 5 minutes on 2 cores.

    python tests/tools/benchmarks/memory.py [--trials 200]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import tune
from ray.tune.experiment import Trial

from experiments.tune_bert import EXPERIMENT
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan

CURVE: list[float] = []
"""Resident memory of the worker after each trial, MB."""


class ReadMemory(tune.Callback):
    """Reads the worker's memory when a trial ends."""

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        CURVE.append(sum(process.memory_info().rss for process in workers()) / 1e6)
        if len(CURVE) % 10 == 0:
            print(f"after {len(CURVE):3d} trials: {CURVE[-1]:7.1f} MB", flush=True)


def workers() -> list[psutil.Process]:
    """Return the workers among the processes that this one started."""
    return [p for p in psutil.Process().children(recursive=True) if "WarmWorker" in " ".join(p.cmdline())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    trials = parser.parse_args().trials
    with tempfile.TemporaryDirectory() as storage:
        ray.init(num_cpus=1, log_to_driver=False)  # one core, and so one group
        options = SweepOptions(
            num_samples=trials,
            recipe="sample",
            epochs=1,
            settings=("train_samples=256", "val_samples=128"),
            search="random",
            scheduler="fifo",
            storage=Path(storage),
            name="memory",
            tracking_uri=f"sqlite:///{storage}/mlflow.db",
        )
        SweepTuner(make_plan(EXPERIMENT, options), callbacks=[ReadMemory()]).fit()
        ray.shutdown()
    tenth, last = CURVE[min(9, trials - 1)], CURVE[-1]
    figures = {"trials": len(CURVE), "after_10_mb": round(tenth, 1), "last_mb": round(last, 1)}
    print(json.dumps({**figures, "peak_mb": round(max(CURVE), 1), "growth": round(last / tenth - 1, 4)}))


if __name__ == "__main__":
    main()
