"""Ray Train's set-up of torch. A module by itself: it imports torch, and the rest of Ray Train does not."""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from ray.train import Result
from ray.train.torch import TorchTrainer

# TorchConfig is public and names its backend; to do something before or after that backend one must inherit from it.
from ray.train.torch.config import _TorchBackend as TorchBackend
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.controller import TrainController

__all__ = ["DISPENSABLE", "LeanTorchTrainer", "TorchBackend"]

DISPENSABLE = (DatasetsCallback, PlacementGroupCleanerCallback)
"""What starts an actor in each group, at 2 s of CPU and 150 MB: one hands out shards of Ray Data, and there are none;
the other frees devices that a dead trial actor left booked, for which it needs Ray's dashboard, and which the sweep
does itself (``free_orphans``)."""


class LeanTorchTrainer(TorchTrainer):
    """A TorchTrainer without what is dispensable here; no argument leaves it out. In an actor it is controlled from
    there, and not from another actor, which would import torch once more (3.5 s of CPU, 690 MB)."""

    def _create_default_callbacks(self) -> list[Any]:
        return [made for made in super()._create_default_callbacks() if not isinstance(made, DISPENSABLE)]

    def _initialize_and_run_controller(self, **parts: Any) -> Result:
        if ray.get_runtime_context().get_actor_id() is None:  # its workers are told an actor that controls them
            return super()._initialize_and_run_controller(**parts)
        controller = TrainController(**parts)
        asyncio.run(controller.run())
        return controller.get_result()
