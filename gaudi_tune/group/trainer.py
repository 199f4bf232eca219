"""How a worker group starts: its specification, and the TorchTrainer that is made of it, with a backend for devices.

In this backend, ranks follow the order of devices, each worker prepares its device before it does anything else, and an
exclusive device is released before its worker ends. This module imports no torch.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray import cloudpickle
from ray.train import FailureConfig, RunConfig, ScalingConfig

from gaudi_tune.devices.device import DeviceType
from gaudi_tune.group.mailbox import MAILBOX, WarmWorker
from gaudi_tune.private import ray_train
from gaudi_tune.private.ray_train import Worker, WorkerGroupCallback, end_workers, run_on_all
from gaudi_tune.private.ray_train_torch import LeanTorchTrainer, TorchBackend, TorchBackendConfig, shut_torch_down

if TYPE_CHECKING:
    from gaudi_tune.training.session import TrainLoop

START_TIMEOUT_S = 600
"""How long the workers may take to start. A busy machine needs more than Ray's limit of 60 s, after which Ray would
retry for ever."""
ANSWER_WITHIN_S = 5
"""How long a worker may take to show that it lives."""
SHUT_DOWN_WITHIN_S = 30
"""How long the workers may take to shut torch down, as in Ray Train. Then Ray kills them."""
LEAVE_WITHIN_S = 75
"""How long workers with exclusive devices may take to end by themselves: closing a device alone may take 60 s."""


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


class RanksByDevice(WorkerGroupCallback):
    """Orders the ranks of each node by its devices. Ray Train (2.60) does this for GPUs only."""

    def __init__(self, resource: str) -> None:
        """Order by the devices that Ray calls ``resource``."""
        self._resource = resource

    def before_init_train_context(self, workers: list[Worker]) -> dict[str, list[Any]]:
        """Reorder the ranks. Ray Train calls it after it has chosen ranks, and before any worker knows its rank."""
        workers_by_node = defaultdict(list)
        for worker in workers:
            workers_by_node[worker.metadata.node_id].append(worker)
        for peers in workers_by_node.values():
            ranks = sorted((worker.distributed_context for worker in peers), key=lambda rank: rank.world_rank)
            for worker, rank in zip(sorted(peers, key=self._index_of), ranks, strict=True):
                worker.distributed_context = rank
        workers.sort(key=lambda worker: worker.distributed_context.world_rank)
        return {}

    def _index_of(self, worker: Worker) -> int:
        (index,) = worker.metadata.accelerator_ids[self._resource]
        return int(index)


class _DeviceBackend(TorchBackend):
    def on_start(self, worker_group: Any, backend_config: DeviceBackendConfig) -> None:
        worker_group.execute(backend_config.device.prepare_worker)  # the process group acquires the device
        super().on_start(worker_group, backend_config)

    def on_shutdown(self, worker_group: Any, backend_config: DeviceBackendConfig) -> None:
        if not backend_config.device.exclusive:
            run_on_all(worker_group, shut_torch_down, SHUT_DOWN_WITHIN_S)
            return
        ends_at = time.monotonic() + LEAVE_WITHIN_S
        # hccl ends a process group when all its ranks have arrived: if one is dead, the others would wait for ever.
        if run_on_all(worker_group, _release_waiter, ANSWER_WITHIN_S):
            run_on_all(worker_group, _leave_process_group, LEAVE_WITHIN_S)
        # habana releases a device when Python exits. Ray would use ray.kill(), which skips that, and nobody could use
        # the device until the driver has reset it.
        end_workers(worker_group, max(ANSWER_WITHIN_S, ends_at - time.monotonic()))


def _release_waiter() -> None:
    MAILBOX.release_waiter()


def _leave_process_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.destroy_process_group()


@dataclass
class DeviceBackendConfig(TorchBackendConfig):
    """The backend of workers with one device each."""

    device: DeviceType

    def __post_init__(self) -> None:
        """Choose the collective library of the device, such as gloo or hccl."""
        self.backend = self.device.backend

    @property
    def backend_cls(self) -> type[_DeviceBackend]:
        """The class that sets the workers up and ends them."""
        return _DeviceBackend
