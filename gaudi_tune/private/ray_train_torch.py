"""Ray Train's TorchTrainer and its set-up of torch, for a process that does not import torch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import ray.train
from ray.train import Result
from ray.train._internal.utils import get_address_and_port
from ray.train.backend import Backend, BackendConfig
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy
from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

# What a TorchTrainer is besides its TorchConfig.
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

__all__ = ["DISPENSABLE", "FixedSize", "HandOver", "LeanTorchTrainer", "TorchBackend", "TorchBackendConfig"]

DISPENSABLE = (DatasetsCallback, PlacementGroupCleanerCallback)
"""What starts an actor in each group, at 2 s of CPU and 150 MB: one hands out shards of Ray Data, and there are none;
the other frees devices that a dead trial actor left booked, for which it needs Ray's dashboard, and which the sweep
does itself (``free_orphans``)."""


class FixedSize(FixedScalingPolicy):
    """Asks for no machines. Ray's autoscaler gets what a group's placement group wants in any case, and what Ray Train
    asks for besides costs an actor in each Ray, 1.8 s of CPU and 190 MB."""

    def after_controller_start(self, train_run_context: Any) -> None:
        """Do not ask for what the workers need."""

    def _maybe_send_resource_request(self) -> None:
        """Do not ask for it again every 20 s."""


class TorchBackend(Backend):
    """Sets up torch as Ray's own backend does, with its functions, which the workers alone import."""

    share_cuda_visible_devices = True

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Have the workers make their process group."""
        address, port = worker_group.execute_single(0, get_address_and_port)
        worker_group.execute(_join_process_group, backend_config.backend, address, port)


class TorchBackendConfig(BackendConfig):
    """What a TorchConfig is to a trainer."""

    backend: str
    """torch's name of what the workers communicate with."""

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[Any]]:
        """What the train loop runs in."""
        return _on_its_device


def _join_process_group(backend: str, address: str, port: int) -> None:
    from ray.train.torch import config

    os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
    config._set_torch_distributed_env_vars()
    context = ray.train.get_context()
    config._setup_torch_process_group(backend, context.get_world_rank(), context.get_world_size(), "env://")


def _on_its_device() -> AbstractContextManager[Any]:
    from ray.train.torch import config

    return config.TorchConfigContextManager()


def shut_torch_down() -> None:
    """End what torch has in a worker, as Ray's backend does in each at its end."""
    from ray.train.torch import config

    config._shutdown_torch(destroy_process_group=ray.train.get_context().get_world_size() > 1)


class LeanTorchTrainer(DataParallelTrainer):
    """A TorchTrainer without what is dispensable here; no argument leaves it out.

    It is made in an actor and controlled from there, not from another actor (3.5 s of CPU, 690 MB). So it can be given
    callbacks that belong to its process. It imports no torch there, which Ray's does to name its backend (1.6 s of
    CPU, 500 MB).
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., None],
        *,
        worker_class: type[RayTrainWorker],
        when_placed: Callable[[], None],
        callbacks: Sequence[WorkerGroupCallback],
        **arguments: Any,
    ) -> None:
        """Prepare, as a TorchTrainer does.

        Args:
            train_loop_per_worker: What each worker runs.
            worker_class: The class of the worker actors.
            when_placed: Is called when the workers have their devices, and no process yet.
            callbacks: Called after Ray's own.
            **arguments: Those of a DataParallelTrainer.
        """
        super().__init__(train_loop_per_worker, **arguments)
        self._worker_class, self._when_placed, self._callbacks = worker_class, when_placed, callbacks

    def _create_default_callbacks(self) -> list[Any]:
        usual = [made for made in super()._create_default_callbacks() if not isinstance(made, DISPENSABLE)]
        return [*usual, *self._callbacks]

    def _initialize_and_run_controller(self, *, scaling_policy: Any, **parts: Any) -> Result:
        when_placed = self._when_placed

        class Group(WorkerGroup):
            _worker_cls = self._worker_class

            def _create_workers(self, *given: Any, **more: Any) -> list[Any]:
                when_placed()
                return super()._create_workers(*given, **more)

        class Controller(TrainController):
            worker_group_cls = Group

        controller = Controller(scaling_policy=FixedSize(scaling_policy.scaling_config), **parts)
        asyncio.run(controller.run())
        return controller.get_result()


class HandOver(WorkerGroupCallback):
    """Gives away the workers' actors, by rank, once they run."""

    def __init__(self, to: Callable[[list[Any]], None]) -> None:
        """Take what is to have them."""
        self._to = to

    def after_worker_group_training_start(self, worker_group: WorkerGroup) -> None:
        """Give them away."""
        self._to([worker.actor for worker in worker_group.get_workers()])
