"""Ray Train: the errors that mean lost processes, its settings, and the workers of a group."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.train import ReportedCheckpoint

from gaudi_tune.private.surfaces import holds, part

try:
    # What ray.tune.report() and its neighbours call; ray.tune has no hook for it, either.
    from ray.train._internal import session as tune_session

    # What ray.train.report() and its neighbours call in a worker; Ray says that it can be patched, and has no setter.
    from ray.train.v2._internal.execution.train_fn_utils import (
        DistributedTrainFnUtils,
        LocalTrainFnUtils,
        TrainFnUtils,
        get_train_fn_utils,
        set_train_fn_utils,
    )

    # Public as ray.train.ReportedCheckpoint, but for its status.
    from ray.train.v2.api import reported_checkpoint
except ImportError:  # the surface is off
    DistributedTrainFnUtils = object
try:
    # The only hook that runs between Ray Train's choice of ranks and the start of the workers.
    from ray.train.v2._internal.execution.callback import WorkerGroupCallback

    # Ray Train's actor for ray.train.collective, and the two places that start and end it.
    from ray.train.v2._internal.execution.checkpoint.sync_actor import SynchronizationActor
    from ray.train.v2._internal.execution.worker_group import state as group_state
    from ray.train.v2._internal.execution.worker_group import worker_group as group_module

    # The class of its worker actors; a worker group has it as an attribute.
    from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
except ImportError:  # the surface is off
    RayTrainWorker = WorkerGroupCallback = object
LOST_WORKERS: tuple[type[BaseException], ...] = ()
"""What TorchTrainer.fit() raises public errors with as their cause. None of these has a public name."""
with suppress(ImportError):
    from ray.train.v2._internal.exceptions import (
        WorkerGroupStartupFailedError,
        WorkerGroupStartupTimeoutError,
        WorkerHealthCheckFailedError,
        WorkerHealthCheckTimeoutError,
    )

    if holds("lost-workers"):
        LOST_WORKERS = (WorkerHealthCheckFailedError, WorkerHealthCheckTimeoutError, WorkerGroupStartupFailedError)

__all__ = ["RayTrainWorker", "WorkerGroupCallback"]

START_TIMEOUT_S = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"
"""Variable: seconds that a worker group may take to start. No argument of TorchTrainer sets it."""
ENABLE_PREEMPTION_WATCHER = "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"
"""Variable: "0" saves an actor per group, which watches for evictions that a cloud announces. No argument sets it."""


WITHOUT_EFFECT = ("checkpoint_dir_name", "checkpoint_upload_mode", "delete_local_checkpoint_after_upload")
"""Arguments of ``ray.train.report()`` that say where a checkpoint goes and how, which the sweep decides."""


class Worker(Protocol):
    """A worker as a :class:`WorkerGroupCallback` gets it. The callback may write its ranks: no public API sets them."""

    actor: Any
    metadata: Any
    """Its ``node_id``, and the numbers of its devices by resource, for example ``accelerator_ids`` {"HPU": ["3"]}."""
    distributed_context: Any
    """The world, local and node rank."""


@part("lost-workers", lambda failure: False)
def timed_out(failure: BaseException | None) -> bool:
    """Whether a TorchTrainer failed because its workers were not there in time."""
    return isinstance(getattr(failure, "controller_failure", None), WorkerGroupStartupTimeoutError)


def run_on_all(worker_group: Any, function: Callable[[], None], within_s: float) -> bool:
    """Run a function on every worker of a group, and return whether all of them finished in time without an error.

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
    """Have the processes of a group's workers exit normally, and wait for that.

    ``ray.kill()`` is public, but it skips what Python runs at exit, and there is no other way to have an actor exit.
    """
    exits = [worker.actor.__ray_terminate__.remote() for worker in worker_group.get_workers()]
    ray.wait(exits, num_returns=len(exits), timeout=within_s)


class _TrainAnswers(DistributedTrainFnUtils):
    """What answers ``ray.train`` in a worker of a sweep."""

    def __init__(
        self,
        report: Callable[[Mapping[str, Any], Any], None],
        get_checkpoint: Callable[[], Any],
        experiment: str,
        knows_reports: Callable[[], bool],
        others: TrainFnUtils,
    ) -> None:
        """Answer with these. ``knows_reports`` says whether this worker knows all that the trial has reported."""
        self._report, self._get_checkpoint, self._experiment = report, get_checkpoint, experiment
        self._knows_reports = knows_reports
        # The rest is Ray's to answer, which differs in a process that is no worker of its.
        self.is_distributed, self.barrier = others.is_distributed, others.barrier
        self.broadcast_from_rank_zero = others.broadcast_from_rank_zero
        self._context_of = others.get_context
        self._reported = list[ReportedCheckpoint]()

    def report(self, metrics: Mapping[str, Any], checkpoint: Any = None, **options: Any) -> None:
        for name, value in options.items():
            if value and name not in WITHOUT_EFFECT:
                raise ValueError(f"report({name}=...): a sweep does not call it; do that in the train loop")
        self._report(metrics, checkpoint)
        if checkpoint is not None:
            self._reported.append(_reported_checkpoint(checkpoint, dict(metrics)))

    def get_checkpoint(self) -> Any:
        return self._get_checkpoint()

    def get_context(self) -> Any:
        context = self._context_of()
        context.get_experiment_name = lambda: self._experiment  # not the worker group's
        return context

    def get_all_reported_checkpoints(self, *how_to_wait: Any, **options: Any) -> list[ReportedCheckpoint]:
        if not self._knows_reports():
            raise RuntimeError(
                "get_all_reported_checkpoints(): in a sweep only rank 0 knows what was reported, and no longer after a "
                "trial has continued from a checkpoint; keep a list in the checkpoint"
            )
        return list(self._reported)

    def get_dataset_shard(self, dataset_info: Any) -> Any:
        raise KeyError(f"there is no dataset {dataset_info.dataset_name!r}: load your data in the train loop")


def _reported_checkpoint(checkpoint: Any, metrics: dict[str, Any]) -> ReportedCheckpoint:
    statuses: Any = getattr(reported_checkpoint, "ReportedCheckpointStatus", None)  # Ray 2.53 has none
    status = {} if statuses is None else {"status": statuses.COMMITTED}
    return ReportedCheckpoint(checkpoint, metrics, **status)


@part("loops-for-ray", lambda *_, **__: nullcontext())
@contextmanager
def answered_by(
    report: Callable[[Mapping[str, Any], Any], None],
    get_checkpoint: Callable[[], Any],
    folder: Path,
    *,
    continues: bool = False,
) -> Iterator[None]:
    """Replace ``report()`` and ``get_checkpoint()`` of ``ray.train`` and ``ray.tune`` in this worker inside the block.

    A loop that is written for Ray calls them, whether it imports the module or the functions. What a sweep does not do
    raises an error: data sets, validation and uploads of Ray Train's.

    Args:
        report: Takes metrics, and a checkpoint or None.
        get_checkpoint: Returns a checkpoint, or None.
        folder: The trial's folder, which ``ray.tune.get_context()`` tells; its name is the trial's.
        continues: Whether the trial has reported before, in another process.
    """

    class TuneAnswers(SimpleNamespace):
        def report(self, metrics: Mapping[str, Any], checkpoint: Any = None) -> None:
            report(metrics, checkpoint)

        @property
        def world_rank(self) -> int:  # by it setup_wandb() starts one run for all workers
            return int(original.get_context().get_world_rank())

        @property
        def loaded_checkpoint(self) -> Any:
            return get_checkpoint()

    original, original_session = get_train_fn_utils(), tune_session._session
    answers = _TrainAnswers(
        report,
        get_checkpoint,
        experiment=folder.parent.name,
        knows_reports=lambda: not continues and original.get_context().get_world_rank() == 0,
        others=original,
    )
    set_train_fn_utils(answers)
    tune_session._session = TuneAnswers(
        trial_id=folder.name, trial_name=folder.name, trial_dir=str(folder), trial_resources=None,
        experiment_name=folder.parent.name,
    )  # fmt: skip
    try:
        yield
    finally:
        set_train_fn_utils(original)
        tune_session._session = original_session


@part("loops-for-ray", nullcontext)
@contextmanager
def one_worker() -> Iterator[None]:
    """Make this process the only worker of a group of Ray Train's inside the block, without Ray."""
    set_train_fn_utils(LocalTrainFnUtils(""))
    try:
        yield
    finally:
        set_train_fn_utils(None)


class SynchronizationOnDemand:
    """Replaces Ray Train's actor for ``ray.train.collective`` by one that starts when a worker first calls it.

    Each worker gets a copy of this object. The actor belongs to the worker that called first, and ends with it.
    """

    def __init__(self, options: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Keep the arguments with which Ray Train would start its actor."""
        self._options = {**options, "name": f"synchronization-{uuid.uuid4()}", "get_if_exists": True}
        self._arguments = dict(arguments)

    @cached_property
    def _actor(self) -> Any:
        return SynchronizationActor.options(**self._options).remote(**self._arguments)

    @property
    def broadcast_from_rank_zero(self) -> Any:
        """The method that workers call."""
        return self._actor.broadcast_from_rank_zero

    @classmethod
    def options(cls, **options: Any) -> SimpleNamespace:
        """Return an object whose ``remote()`` makes this one, as with the options of Ray's actors."""
        return SimpleNamespace(remote=lambda **arguments: cls(options, arguments))


def synchronize_on_demand() -> None:
    """Have Ray Train start its actor for ``ray.train.collective`` only if a train loop uses that.

    Otherwise it starts one in each group, which takes 1.7 s of CPU and 190 MB.
    """
    group_module.SynchronizationActor = SynchronizationOnDemand
    group_state._shutdown_sync_actor = lambda actor: None
