"""Ray Train's set-up of torch. A module by itself: it imports torch, and the rest of Ray Train does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ray.train import Result
from ray.train.torch import TorchTrainer

# TorchConfig is public and names its backend; to do something before or after that backend one must inherit from it.
from ray.train.torch.config import _TorchBackend as TorchBackend
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy
from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

__all__ = ["DISPENSABLE", "FixedSize", "LeanTorchTrainer", "TorchBackend"]

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


class LeanTorchTrainer(TorchTrainer):
    """A TorchTrainer without what is dispensable here; no argument leaves it out.

    It is made in an actor and controlled from there, not from another actor, which would import torch once more (3.5 s
    of CPU, 690 MB). So it can hand over its workers.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., None],
        *,
        worker_class: type[RayTrainWorker],
        when_started: Callable[[list[Any]], None],
        **arguments: Any,
    ) -> None:
        """Prepare, as a TorchTrainer does.

        Args:
            train_loop_per_worker: What each worker runs.
            worker_class: The class of the worker actors.
            when_started: Is given the workers' actors, by rank, once they run.
            **arguments: Those of a TorchTrainer.
        """
        super().__init__(train_loop_per_worker, **arguments)
        self._worker_class, self._when_started = worker_class, when_started

    def _create_default_callbacks(self) -> list[Any]:
        return [made for made in super()._create_default_callbacks() if not isinstance(made, DISPENSABLE)]

    def _initialize_and_run_controller(self, *, callbacks: list[Any], scaling_policy: Any, **parts: Any) -> Result:
        class Group(WorkerGroup):
            _worker_cls = self._worker_class

        class Controller(TrainController):
            worker_group_cls = Group

        controller = Controller(
            callbacks=[*callbacks, _HandOver(self._when_started)],
            scaling_policy=FixedSize(scaling_policy.scaling_config),
            **parts,
        )
        asyncio.run(controller.run())
        return controller.get_result()


class _HandOver(WorkerGroupCallback):
    def __init__(self, hand_over: Callable[[list[Any]], None]) -> None:
        self._hand_over = hand_over

    def after_worker_group_training_start(self, worker_group: WorkerGroup) -> None:
        self._hand_over([worker.actor for worker in worker_group.get_workers()])
