"""How a worker group starts: its specification, and what a TorchTrainer is told of it, whichever runs it.

This module imports no torch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray import cloudpickle
from ray.train import FailureConfig, RunConfig, ScalingConfig

from gaudi_tune.devices.device import DeviceType
from gaudi_tune.private import ray_train

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

    def for_trainer(self, name: str, **run_options: Any) -> dict[str, Any]:
        """Return the arguments of a TorchTrainer for a group of this name."""
        # Ray Train reads these variables in this process when the trainer is made.
        os.environ[ray_train.START_TIMEOUT_S] = str(START_TIMEOUT_S)
        os.environ[ray_train.ENABLE_PREEMPTION_WATCHER] = "0"  # an actor for each group, useful only in some clouds
        config = {
            "train_loop": cloudpickle.dumps(self.train_loop),
            "device": self.device,
            "trials_per_device": self.trials_per_device,
            "environment": dict(self.later_environment),
        }
        scaling = ScalingConfig(
            num_workers=self.num_workers,
            use_gpu=self.device.is_gpu_to_ray,
            resources_per_worker=self.device.worker_resources(self.trials_per_device),
            # PACK takes whole nodes if nothing else has parts of them.
            placement_strategy="PACK" if self.over_nodes else "STRICT_PACK",
        )
        run = RunConfig(
            name=name,
            storage_path=self.storage,
            # The trial actor replaces a failed group. The default of controller_failure_limit, -1, waits for ever.
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
            worker_runtime_env={"env_vars": {**self.device.worker_environment(), **self.environment}},
            **run_options,
        )
        return {"train_loop_config": config, "scaling_config": scaling, "run_config": run}
