"""How many images a second a recipe loads with so many processes, and how long the first batch of an epoch is awaited.

Loads some epochs of the recipe's training batches, and prints for each number of processes the images a second of the
best, and the median of the seconds from the begin of an epoch to its first batch. 0: the worker itself loads.

    python -m tests.tools.benchmarks.loading resnet50 hymenoptera_data --processes 0 1 2 4
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time

from gaudi_tune.data.images import images_of
from gaudi_tune.recipes.loading import Loader, TrainSampler
from gaudi_tune.training.fresh_start import fresh_start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("data")
    parser.add_argument("--processes", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args()
    experiment = importlib.import_module(f"experiments.tune_{given.recipe}").EXPERIMENT
    full = experiment.for_recipe("full", 1)
    budget = full.recipes["full"].budget.settings()
    values = {**full.recipes["full"].settings(), **full.baseline, **budget, "data": given.data}
    config = full.config_class.from_dict(values)
    images = images_of(config).train
    fresh_start(1)  # one thread, as in a worker
    for processes in given.processes:
        sampler = TrainSampler(len(images), config, 0, 1)
        loader = Loader(images, sampler, processes)
        speeds, first_s = [], []
        for epoch in range(given.epochs):
            sampler.start_at(epoch, 0)
            began = time.perf_counter()
            batches = iter(loader)
            count = len(next(batches)["labels"])
            first_s.append(time.perf_counter() - began)
            count += sum(len(batch["labels"]) for batch in batches)
            speeds.append(count / (time.perf_counter() - began))
        figures = {"images_per_s": round(max(speeds)), "first_batch_s": round(statistics.median(first_s), 3)}
        print(f"{processes} processes: {json.dumps(figures)}", flush=True)


if __name__ == "__main__":
    main()
