"""Why a worker group ends, and whether its trial can continue in another group."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path

from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
)

from gaudi_tune.private.ray_core import HOST_OUT_OF_MEMORY
from gaudi_tune.private.ray_train import (
    WorkerGroupStartupFailedError,
    WorkerGroupStartupTimeoutError,
    WorkerHealthCheckFailedError,
    WorkerHealthCheckTimeoutError,
)

LOSS_ERRORS = (
    LocalRayletDiedError, NodeDiedError, ObjectLostError, OutOfMemoryError, RayActorError, WorkerCrashedError,
    WorkerHealthCheckFailedError, WorkerHealthCheckTimeoutError, WorkerGroupStartupFailedError,
)  # fmt: skip
"""What Ray and Ray Train raise when a process or its node is gone. With an OutOfMemoryError, Ray has killed the process
because the host's memory was full."""
NODE_DIED = "its node has died"
"""This is in the text of Ray's errors about actors that ended with their node."""
UNUSABLE_REPORT = "the train loop's report is unusable"
"""The error begins with this text when a trial reports something that a sweep cannot use, or nothing at all."""


class WorkerGroupError(RuntimeError):
    """The group cannot be used again."""


class WorkerRaisedError(WorkerGroupError):
    """The train loop raised an error, or the code that sets up a worker or reads the configuration did.

    A retry would raise the same error.
    """


class WorkersLostError(WorkerGroupError):
    """A process of the group, or its node, is gone; in a new group the trial can continue from its last checkpoint."""


class LostTooOftenError(WorkersLostError):
    """The trial has lost its workers more often than ``--retries`` allows."""


class StartHungError(WorkerGroupError):
    """The workers do not start, and cannot be killed one by one.

    They end with their trial actor, and another trial actor may succeed.
    """


class DevicesNotReadyError(WorkerGroupError):
    """Another process still has the devices, or they are being reset; a new group may get them soon."""


def is_loss(failure: BaseException | None) -> bool:
    """Whether a TorchTrainer failed because processes or nodes are gone, not because of an error in what they ran."""
    errors = (failure, getattr(failure, "controller_failure", None), *_errors_of_workers(failure))
    return any(isinstance(error, LOSS_ERRORS) for error in errors)


def timed_out(failure: BaseException | None) -> bool:
    """Whether a TorchTrainer gave up waiting for its devices."""
    return isinstance(getattr(failure, "controller_failure", None), WorkerGroupStartupTimeoutError)


def text_of(failure: BaseException | None) -> str:
    """Return the text of an error that Ray raised. Its last line, which users see, says what happened."""
    text = str(failure)
    if HOST_OUT_OF_MEMORY in text:
        text += "\nout of memory on the host, so Ray killed processes: fewer or smaller trials at a time need less"
    elif any(isinstance(e, LOSS_ERRORS) for e in _errors_of_workers(failure)) and NODE_DIED not in text:
        text += (
            "\na worker's process ended without raising an error: it was killed, it crashed, or your train loop called "
            "os._exit()"
        )
    return text


def text_of_loop(error: BaseException) -> str:
    """Return the traceback of an error in a train loop. Its last line, which users see, says what happened."""
    text = "".join(traceback.format_exception(error)).rstrip()
    frames = traceback.extract_tb(error.__traceback__)
    place = "".join(f" at {Path(frame.filename).name}:{frame.lineno} ({frame.line})" for frame in frames[-1:])
    if not isinstance(error, Exception):
        description = " ".join(filter(None, (type(error).__name__, str(error))))
        text += (
            f"\nyour train loop ended its process ({description}){place}: return to end a trial, or raise an "
            f"error to fail it"
        )
    elif not str(error):
        text += f"\n{type(error).__name__} without a message, raised{place}"
    return text


def _errors_of_workers(failure: BaseException | None) -> Iterable[BaseException]:
    return getattr(failure, "worker_failures", {}).values()
