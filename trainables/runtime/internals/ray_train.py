"""Ray Train: the errors that mean lost processes, its settings, and the workers of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import ray

# TorchTrainer.fit() raises public errors that carry these as their cause; none of the four has a public name.
from ray.train.v2._internal.exceptions import (
    WorkerGroupStartupFailedError,
    WorkerGroupStartupTimeoutError,
    WorkerHealthCheckFailedError,
    WorkerHealthCheckTimeoutError,
)

# The only hook that runs between Ray Train's choice of ranks and the start of the workers.
from ray.train.v2._internal.execution.callback import WorkerGroupCallback

__all__ = [
    "ENABLE_PREEMPTION_WATCHER",
    "START_TIMEOUT_S",
    "Worker",
    "WorkerGroupCallback",
    "WorkerGroupStartupFailedError",
    "WorkerGroupStartupTimeoutError",
    "WorkerHealthCheckFailedError",
    "WorkerHealthCheckTimeoutError",
    "end_workers",
]

START_TIMEOUT_S = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"
"""Variable: seconds that a worker group may take to start. No argument of TorchTrainer sets it."""
ENABLE_PREEMPTION_WATCHER = "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"
"""Variable: "0" saves an actor per group, which watches for evictions that a cloud announces. No argument sets it."""


class WorkerMetadata(Protocol):
    """Where a worker runs, and on what."""

    node_id: str
    accelerator_ids: Mapping[str, list[Any]]
    """By resource, for example {"HPU": ["3"]}."""


class Worker(Protocol):
    """What a :class:`WorkerGroupCallback` is given of each worker. Its ranks are written: nothing public sets them."""

    actor: Any
    metadata: WorkerMetadata
    distributed_context: Any
    """World, local and node rank."""


def end_workers(worker_group: Any, within_s: float) -> None:
    """Have the workers of a group end as a Python process does, and wait for it.

    ``ray.kill()`` is public, but skips what runs when Python exits, and an actor cannot be asked to exit otherwise.
    """
    leaving = [worker.actor.__ray_terminate__.remote() for worker in worker_group.get_workers()]
    ray.wait(leaving, num_returns=len(leaving), timeout=within_s)
