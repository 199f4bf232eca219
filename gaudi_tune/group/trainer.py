"""How a worker group starts: its specification, and the TorchTrainer that is made of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray import cloudpickle
from ray.train import FailureConfig, RunConfig, ScalingConfig

from gaudi_tune.devices.device import DeviceType
from gaudi_tune.group.device_backend import DeviceBackendConfig, RanksByDevice
from gaudi_tune.group.mailbox import WarmWorker
from gaudi_tune.private import ray_train
from gaudi_tune.private.ray_train_torch import LeanTorchTrainer

if TYPE_CHECKING:
    from gaudi_tune.training.session import TrainLoop

START_TIMEOUT_S = 600
"""How long the workers may take to start. A busy machine needs more than Ray's limit of 60 s, after which Ray would
retry for ever."""


@dataclass(frozen=True, kw_only=True)
class WorkerGroupSpec:
    """How to start a group."""

    train_loop: TrainLoop
    num_workers: int
    device: DeviceType
    trials_per_device: int = 1
    """How many groups share the device: each books this part of it from Ray."""
    storage: str
    """Folder in which the TorchTrainer keeps its own files."""
    over_nodes: bool = False
    """Whether the group takes several whole nodes; otherwise all its workers are on one node."""
    hung_after_s: float = 0.0
    """How long the workers may take for a report before they count as hung and are killed; 0: for ever. Their first
    report may take :data:`START_TIMEOUT_S` longer."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the worker processes besides those of the device, set before they import torch. With any, Ray starts
    new processes: seconds later than without."""
    later_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the worker processes set themselves, before the first trial."""
    numbers: tuple[int, ...] = ()
    """The numbers of the devices that the group takes; empty: whichever Ray hands out."""

    @property
    def placement_strategy(self) -> str:
        """How Ray places the workers. PACK takes whole nodes if nothing else has parts of them."""
        return "PACK" if self.over_nodes else "STRICT_PACK"


def make_trainer(
    spec: WorkerGroupSpec, name: str, when_placed: Callable[[], None], when_started: Callable[[list[Any]], None]
) -> LeanTorchTrainer:
    """Return the TorchTrainer of a group. It calls the functions when its workers have devices, and when they run."""
    # Ray Train reads these variables in this process when the trainer is made.
    os.environ[ray_train.START_TIMEOUT_S] = str(START_TIMEOUT_S)
    os.environ[ray_train.ENABLE_PREEMPTION_WATCHER] = "0"  # an actor for each group, useful only in some clouds
    ray_train.synchronize_on_demand()
    orders_ranks = spec.device.has_numbers and not spec.device.is_gpu_to_ray  # Ray Train orders them by GPU itself
    config = {
        "train_loop": cloudpickle.dumps(spec.train_loop),
        "device": spec.device,
        "trials_per_device": spec.trials_per_device,
        "environment": dict(spec.later_environment),
    }
    return LeanTorchTrainer(
        _serve_trials,
        worker_class=WarmWorker,
        when_placed=when_placed,
        when_started=when_started,
        train_loop_config=config,
        backend_config=DeviceBackendConfig(device=spec.device),
        scaling_config=ScalingConfig(
            num_workers=spec.num_workers,
            use_gpu=spec.device.is_gpu_to_ray,
            resources_per_worker=spec.device.worker_resources(spec.trials_per_device),
            placement_strategy=spec.placement_strategy,
        ),
        run_config=RunConfig(
            name=name,
            storage_path=spec.storage,
            # The trial actor replaces a failed group. The default of controller_failure_limit, -1, waits for ever.
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
            worker_runtime_env={"env_vars": {**spec.device.worker_environment(), **spec.environment}},
            callbacks=[RanksByDevice(spec.device.resource)] if orders_ranks else [],
        ),
    )


def _serve_trials(config: dict[str, Any]) -> None:
    from gaudi_tune.group.worker import serve_trials  # here, so that only workers import torch

    serve_trials(config)
