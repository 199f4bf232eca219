"""The TorchTrainer of a worker group that runs in the trial actor, with a backend for devices.

In this backend, ranks follow the order of devices, each worker prepares its device before it does anything else, and an
exclusive device is released before its worker ends. This module imports no torch.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from gaudi_tune.devices.device import DeviceType
from gaudi_tune.group.mailbox import MAILBOX, Answering
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.private import ray_train, ray_train_torch
from gaudi_tune.private.ray_train import RayTrainWorker, Worker, WorkerGroupCallback, end_workers, run_on_all
from gaudi_tune.private.ray_train_torch import LeanTorchTrainer, TorchBackend, TorchBackendConfig, shut_torch_down

ANSWER_WITHIN_S = 5
"""How long a worker may take to show that it lives."""
SHUT_DOWN_WITHIN_S = 30
"""How long the workers may take to shut torch down, as in Ray Train. Then Ray kills them."""
LEAVE_WITHIN_S = 75
"""How long workers with exclusive devices may take to end by themselves: closing a device alone may take 60 s."""


def lean_trainer(spec: WorkerGroupSpec, name: str, hooks: ray_train_torch.Hooks) -> LeanTorchTrainer:
    """Return the TorchTrainer of a group, which tells of its workers by ``hooks``."""
    ray_train.synchronize_on_demand()
    orders_ranks = spec.device.has_numbers and not spec.device.is_gpu_to_ray  # Ray Train orders them by GPU itself
    return LeanTorchTrainer(
        _serve_trials,
        worker_class=WarmWorker,
        backend_config=DeviceBackendConfig(device=spec.device),
        hooks=hooks,
        **spec.for_trainer(name, callbacks=[RanksByDevice(spec.device.resource)] if orders_ranks else []),
    )


def _serve_trials(config: dict[str, Any]) -> None:
    from gaudi_tune.group.worker import serve_trials  # here, so that only workers import torch

    serve_trials(config)


class WarmWorker(Answering, RayTrainWorker):
    """A worker of Ray Train with a mailbox. Its methods run beside the train loop, which has its own thread."""

    mailbox = MAILBOX

    def __init__(self) -> None:
        """Turn off garbage collection while modules are imported; :func:`serve_trials` turns it on again."""
        super().__init__()
        with suppress(OSError):  # it may be gone
            MAILBOX.started_in = Path.cwd()
        gc.disable()


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
    @override
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
