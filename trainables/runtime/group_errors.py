"""Why a worker group ends, and whether its trial can go on in another."""

from __future__ import annotations

from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
)
from ray.train.v2._internal.exceptions import (  # what a TorchTrainer raises when processes or nodes are gone
    WorkerGroupStartupFailedError,
    WorkerGroupStartupTimeoutError,
    WorkerHealthCheckFailedError,
    WorkerHealthCheckTimeoutError,
)

GONE = (
    LocalRayletDiedError, NodeDiedError, ObjectLostError, OutOfMemoryError, RayActorError, WorkerCrashedError,
    WorkerHealthCheckFailedError, WorkerHealthCheckTimeoutError, WorkerGroupStartupFailedError,
)  # fmt: skip
"""What Ray and Ray Train raise when a process or its node is gone; OutOfMemoryError, when Ray has killed it because the
host's memory was full."""
HOST_OUT_OF_MEMORY = "low on memory"
"""What Ray says of every process that it killed for that, in whichever error."""


class WorkerGroupError(RuntimeError):
    """The group cannot be used again."""


class WorkerRaisedError(WorkerGroupError):
    """What the workers ran raised: the train loop, or what sets a worker up. It would raise again."""


class WorkersLostError(WorkerGroupError):
    """A process of the group, or its node, is gone; in a new group the trial can go on from its last checkpoint."""


class LostTooOftenError(WorkersLostError):
    """The trial has lost its workers more often than it may."""


class StartHungError(WorkerGroupError):
    """The workers do not come, and cannot be reached: they end with the trial actor, and another may start some."""


class DevicesNotReadyError(WorkerGroupError):
    """The devices are still someone else's, or being reset after them; a new group may have them soon."""


def is_loss(failure: BaseException | None) -> bool:
    """Whether a TorchTrainer failed because processes or nodes are gone, and not by an error in what they ran."""
    of_workers = getattr(failure, "worker_failures", {}).values()
    return any(isinstance(e, GONE) for e in (failure, getattr(failure, "controller_failure", None), *of_workers))


def timed_out(failure: BaseException | None) -> bool:
    """Whether a TorchTrainer waited in vain for its devices."""
    return isinstance(getattr(failure, "controller_failure", None), WorkerGroupStartupTimeoutError)


def text_of(failure: BaseException | None) -> str:
    """Return the text of an error; people are shown the last line of it."""
    text = str(failure)
    if HOST_OUT_OF_MEMORY in text:
        text += "\nout of memory on the host, so Ray killed processes: fewer or smaller trials at a time need less"
    return text
