"""Ray Train's set-up of torch. A module by itself: it imports torch, and the rest of Ray Train does not."""

from __future__ import annotations

from typing import Any

from ray.train.torch import TorchTrainer

# TorchConfig is public and names its backend; to do something before or after that backend one must inherit from it.
from ray.train.torch.config import _TorchBackend as TorchBackend
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

__all__ = ["DISPENSABLE", "LeanTorchTrainer", "TorchBackend"]

DISPENSABLE = (DatasetsCallback, PlacementGroupCleanerCallback)
"""What starts an actor in each group, at 2 s of CPU and 150 MB: one hands out shards of Ray Data, and there are none;
the other frees devices that a dead controller left booked, for which it needs Ray's dashboard, and which the sweep does
itself (``free_orphans``)."""


class LeanTorchTrainer(TorchTrainer):
    """A TorchTrainer without what is dispensable here. No argument leaves it out."""

    def _create_default_callbacks(self) -> list[Any]:
        return [made for made in super()._create_default_callbacks() if not isinstance(made, DISPENSABLE)]
