"""A sweep for simulated groups, planned: nothing trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune

from gaudi_tune import Budget, Experiment
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from tests.helpers.small_task import SmallConfig, small_loop


@dataclass(frozen=True, kw_only=True)
class GrowingConfig(SmallConfig):
    """Of simulated trials, which may grow in any case."""

    def why_not_wider(self, device: DeviceType, workers: int, wider: int) -> str | None:
        return None


def simulated_tuner(folder: Path, *, trials: int, epochs: int, **options: Any) -> SweepTuner:
    """Return a sweep that only needs :func:`~tests.helpers.simulated_groups.without_ray`, and tells no tracker."""
    experiment = Experiment(
        name="growing",
        train_loop=small_loop,
        config_class=GrowingConfig,
        space={"lr": tune.loguniform(1e-3, 1.0), "momentum": tune.uniform(0.0, 0.95)},
        baseline={"lr": 0.1, "momentum": 0.9},
        budget=Budget(epochs=epochs),
    )
    places = {"storage": folder / "results", "tracking_uri": f"sqlite:///{folder}/mlflow.db"}
    options = {"num_samples": trials, "search": "random", "grow": "off", "name": "growing", **places, **options}
    return SweepTuner(make_plan(experiment, SweepOptions(**options)), trackers=())
