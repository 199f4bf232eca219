"""A sweep for simulated groups, and what it does without: nothing trains."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import ray
from ray import tune
from ray.train._internal import storage as rays_storage
from ray.tune.execution import tune_controller

from gaudi_tune import Budget, Experiment
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.find import Devices
from gaudi_tune.on_ray import sweep_run, tuner
from gaudi_tune.on_ray.local_ray import ENVIRONMENT
from gaudi_tune.on_ray.ray_watch import RayWatch
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan import find_devices
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.trackers.delivery import Sender
from tests.helpers.simulated_groups import Groups
from tests.helpers.small_task import SmallConfig, small_loop


@dataclass(frozen=True, kw_only=True)
class GrowingConfig(SmallConfig):
    """Of simulated trials, which may grow in any case."""

    def why_not_wider(self, device: DeviceType, workers: int, wider: int) -> str | None:
        return None


def simulated_tuner(folder: Path, *, trials: int, epochs: int, **options: Any) -> SweepTuner:
    """Return a sweep that only needs :func:`without_ray`, and tells no tracker."""
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


@contextmanager
def without_ray(storage: Path, groups: Groups, kind: DeviceType) -> Iterator[None]:
    """Let sweeps inside the block do without a Ray, on these groups and their clock, and without deliveries to MLflow.

    Args:
        storage: A folder for files of Ray.
        groups: What takes the place of trial actors.
        kind: Of the devices.
    """
    devices = Devices(kind, (groups.count,), "simulated")
    nothing = lambda *_: None  # noqa: E731
    others: list[tuple[Any, str, Any]] = [
        (find_devices, "find_devices", lambda *_: devices),
        (tuner, "start_ray", lambda _: os.environ.update(ENVIRONMENT)),
        (sweep_run, "free_orphans", nothing),
        (sweep_run, "waiting_actors", set),
        (RayWatch, "start", nothing),
        (Sender, "start", nothing),
        (ray, "cluster_resources", lambda: {"CPU": 1.0}),
        (rays_storage, "_get_ray_train_session_dir", lambda: str(storage / "session")),
        (tune_controller, "RayActorManager", groups),
        (time, "monotonic", groups.clock.now),
    ]
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, {"TUNE_DISABLE_AUTO_INIT": "1"}))
        for where, name, other in others:
            stack.enter_context(mock.patch.object(where, name, other))
        yield
