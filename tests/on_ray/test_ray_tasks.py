"""What a train loop starts through Ray runs beside the trials, or says at once why it cannot."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune

from gaudi_tune import Experiment, SweepOptions, build_tuner, report
from tests.helpers.groups import in_one_group


@ray.remote
def double(number: int) -> int:
    return 2 * number


@ray.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


def uses_ray(config: dict[str, Any]) -> None:
    counter = Counter.remote()  # type: ignore[attr-defined]
    for _ in range(config["epochs"]):
        refusal = ""
        with suppress(RuntimeError):
            double.options(num_cpus=99).remote(1)
            refusal = "none"
        doubled = ray.get(double.remote(21), timeout=60)
        counted = ray.get(counter.add.remote(), timeout=60)
        report({"score": config["x"], "doubled": doubled, "counted": counted, "refused": refusal == ""})


@pytest.mark.workers
def test_remote_functions_and_actors_run_beside_the_trials(ray_here: None, tmp_path: Path) -> None:
    experiment = Experiment(train_loop=uses_ray, space={"x": tune.uniform(0.0, 1.0)}, metric="score")
    options = SweepOptions(storage=tmp_path, device="cpu", num_samples=1, epochs=2)
    (result,) = in_one_group(build_tuner(experiment, options=options)).fit()
    assert result.metrics is not None
    assert (result.metrics["doubled"], result.metrics["counted"], result.metrics["refused"]) == (42, 2, True)
