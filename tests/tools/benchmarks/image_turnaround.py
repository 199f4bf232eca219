"""How long a trial of an image model takes to start: loader processes that stay, against loaders started anew.

The same short trials of ResNet-18's sample recipe go through a warm worker group, first with this project's loaders and
then with a torch DataLoader each for training and validation, whose processes start with every trial, as is usual. Both
load with 4 processes. Prints, last, one JSON object:

    {"start_s": ..., "start_s_anew": ..., "ratio": ...}

where a start is the median time from the order to start a trial until its first batch is there, the first trial of each
group left out. Takes about 3 minutes on 2 cores.

    python tests/tools/benchmarks/image_turnaround.py [--trials 8]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import ray
from torch.utils.data import DataLoader, Dataset

from gaudi_tune.define.options import PROJECT_ROOT

sys.path[0] = str(PROJECT_ROOT)  # the tests are no package that is installed
from experiments.tune_resnet18 import sample_settings
from gaudi_tune.base import names
from gaudi_tune.devices.cpu import CPU
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.group.worker_group import WorkerGroup
from gaudi_tune.on_ray.local_ray import python_path_with
from gaudi_tune.training import loop
from gaudi_tune.training.loading import Loader
from gaudi_tune.training.session import TrainLoop
from search_spaces.resnet18 import SAMPLE_BASELINE
from tests.helpers.host import Host, Hosted
from trainables.resnet18 import train_loop

LOADERS = 4
SMALL = {"train_samples": 512, "val_samples": 128, "epochs": 1}
"""So that a trial takes seconds."""


class Fetched(Dataset[Any]):
    """Takes this project's batches, with their seeds, from a torch DataLoader."""

    def __init__(self, load: Any) -> None:
        self._load = load

    def __getitems__(self, batch: Any) -> Any:
        return self._load(batch)


def usual_loader(data: Dataset[Any], batches: Iterable[Any], loader_workers: int, pins_memory: bool) -> DataLoader[Any]:
    """Return what takes a loader's place: a DataLoader with processes for each trial."""
    return DataLoader(
        Fetched(Loader(data, batches, 0, pins_memory)._load),
        batch_sampler=batches,
        num_workers=loader_workers,
        pin_memory=pins_memory,
        persistent_workers=True,
        multiprocessing_context="forkserver",
        collate_fn=as_it_is,
    )


def as_it_is(batch: Any) -> Any:
    """Return the batch, which is made already."""
    return batch


def loop_with_usual_loaders(config: dict[str, Any]) -> None:
    """Train a trial of ResNet-18 whose loaders start with it."""
    with patch.object(loop, "Loader", usual_loader):
        train_loop(config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8)
    trials = parser.parse_args().trials
    with python_path_with([str(PROJECT_ROOT)]):  # workers import this module
        ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    kept, anew = median_start(train_loop, trials), median_start(loop_with_usual_loaders, trials)
    ray.shutdown()
    print(json.dumps({"start_s": kept, "start_s_anew": anew, "ratio": round(anew / kept, 1)}))


def median_start(of: TrainLoop, trials: int) -> float:
    """Return the median start of the trials of a new group but the first, in seconds."""
    starts = []
    with tempfile.TemporaryDirectory() as storage:
        spec = WorkerGroupSpec(train_loop=of, num_workers=1, device=CPU, storage=storage)
        group = Hosted(ray.remote(Host).options(num_cpus=0).remote(), WorkerGroup.start, spec, of.__name__)
        for seed in range(trials):
            config = {**sample_settings(), **SAMPLE_BASELINE, **SMALL, "seed": seed, "loader_workers": LOADERS}
            ordered_at = time.time()
            report = group.start_trial(config, None)
            starts.append(report["metrics"][names.FIRST_STEP_AT] - ordered_at)
            print(f"{of.__name__}: trial {seed} had its first batch after {starts[-1]:.3f} s", flush=True)
        group.exit()
    return round(statistics.median(starts[1:]), 3)


if __name__ == "__main__":
    from tests.tools.benchmarks import image_turnaround  # workers must find the loops in a module

    image_turnaround.main()
