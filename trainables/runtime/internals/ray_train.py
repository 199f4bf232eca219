"""Ray Train: the errors that mean lost processes, its settings, and the workers of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import ray
from ray.exceptions import RayActorError, RayTaskError

# TorchTrainer.fit() raises public errors that carry these as their cause; none of the four has a public name.
from ray.train.v2._internal.exceptions import (
    WorkerGroupStartupFailedError,
    WorkerGroupStartupTimeoutError,
    WorkerHealthCheckFailedError,
    WorkerHealthCheckTimeoutError,
)

# The only hook that runs between Ray Train's choice of ranks and the start of the workers.
from ray.train.v2._internal.execution.callback import WorkerGroupCallback

# What ray.train.report() and its neighbours call in a worker; Ray says of it that it can be patched, and has no setter.
from ray.train.v2._internal.execution.train_fn_utils import (
    DistributedTrainFnUtils,
    get_train_fn_utils,
    set_train_fn_utils,
)

__all__ = [
    "ENABLE_PREEMPTION_WATCHER",
    "START_TIMEOUT_S",
    "Worker",
    "WorkerGroupCallback",
    "WorkerGroupStartupFailedError",
    "WorkerGroupStartupTimeoutError",
    "WorkerHealthCheckFailedError",
    "WorkerHealthCheckTimeoutError",
    "answered_by",
    "end_workers",
    "run_on_all",
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


def run_on_all(worker_group: Any, function: Callable[[], None], within_s: float) -> bool:
    """Run a function on every worker of a group, and return whether all have done so in time.

    ``worker_group.execute()`` waits without a limit.
    """
    answers = worker_group.execute_async(function)
    ready, late = ray.wait(answers, num_returns=len(answers), timeout=within_s)
    try:
        ray.get(ready)
    except (RayActorError, RayTaskError):
        return False
    return not late


def end_workers(worker_group: Any, within_s: float) -> None:
    """Have the workers of a group end as a Python process does, and wait for it.

    ``ray.kill()`` is public, but skips what runs when Python exits, and an actor cannot be asked to exit otherwise.
    """
    leaving = [worker.actor.__ray_terminate__.remote() for worker in worker_group.get_workers()]
    ray.wait(leaving, num_returns=len(leaving), timeout=within_s)


@contextmanager
def answered_by(report: Callable[[Mapping[str, Any], Any], None], get_checkpoint: Callable[[], Any]) -> Iterator[None]:
    """Have these answer ``ray.train.report()`` and ``ray.train.get_checkpoint()`` in this worker, inside the block.

    A loop that is written for Ray Train calls them, whether it imports the module or the functions.
    """

    class Answers(DistributedTrainFnUtils):
        def report(self, metrics: Mapping[str, Any], checkpoint: Any = None, *how_to_upload: Any, **more: Any) -> None:
            report(metrics, checkpoint)

        def get_checkpoint(self) -> Any:
            return get_checkpoint()

    usual = get_train_fn_utils()
    set_train_fn_utils(Answers())
    try:
        yield
    finally:
        set_train_fn_utils(usual)
