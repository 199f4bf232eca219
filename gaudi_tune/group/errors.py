"""Why a worker group ends, and whether its trial can continue in another group."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
)
from ray.train import TrainingFailedError

from gaudi_tune.base.failure import Failure, FailureKind, fingerprint_of, message_of, name_of_type
from gaudi_tune.base.words import MAX_LINE, harmless, last_line, shortened
from gaudi_tune.group.clean.own_code import is_own_file
from gaudi_tune.private.ray_core import was_killed_for_memory
from gaudi_tune.private.ray_train import LOST_WORKERS

LOSS_ERRORS = (
    LocalRayletDiedError, NodeDiedError, ObjectLostError, OutOfMemoryError, RayActorError, WorkerCrashedError,
    *LOST_WORKERS,
)  # fmt: skip
"""What Ray and Ray Train raise when a process or its node is gone. With an OutOfMemoryError, Ray has killed the process
because the host's memory was full."""

MAX_ERROR = 100_000
"""Most characters of a train loop's error that are kept."""


class WorkerGroupError(RuntimeError):
    """The group cannot be used again. The error carries why, also when Ray has sent it to another process."""

    kind: ClassVar[FailureKind] = FailureKind.GROUP_ERROR
    """The kind of the failure if the error is raised with a text."""

    def __init__(self, failure: Failure | str) -> None:
        super().__init__(failure)
        self.failure = Failure(self.kind, failure) if isinstance(failure, str) else failure

    def __str__(self) -> str:
        """Return what happened, for people."""
        return self.failure.text


class WorkerRaisedError(WorkerGroupError):
    """The train loop raised an error, or the code that sets up a worker or reads the configuration did.

    A retry would raise the same error.
    """


class WorkersLostError(WorkerGroupError):
    """A process of the group, or its node, is gone; in a new group the trial can continue from its last checkpoint."""

    kind = FailureKind.LOST


class LostTooOftenError(WorkersLostError):
    """The trial has lost its workers more often than ``--retries`` allows."""


class StartHungError(WorkerGroupError):
    """The workers do not start, and cannot be killed one by one.

    They end with their trial actor, and another trial actor may succeed.
    """

    kind = FailureKind.START_FAILED


class DevicesNotReadyError(WorkerGroupError):
    """Another process still has the devices, or they are being reset; a new group may get them soon."""

    kind = FailureKind.START_FAILED


class MisplacedError(DevicesNotReadyError):
    """The group was to have certain devices and got others, which became free at that moment."""


class LostActorError(RayActorError):
    """A trial actor is lost, and Ray has raised another error than a RayActorError."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(error_msg=failure.text)
        self.args = (failure,)  # with which it is unpickled
        self.failure = failure


def lost_actor(error: BaseException) -> LostActorError:
    """Return the loss of a trial actor that an error of :data:`LOSS_ERRORS` stands for."""
    return LostActorError(failure_of(error))


def failure_of(error: BaseException) -> Failure:
    """Return what an error stands for that Ray or Ray Train raised, or that a trial actor raised and Ray passed on."""
    cause = getattr(error, "cause", None)  # of a RayTaskError: what was raised in the actor
    for carrier in (error, cause):
        if isinstance(carrier, WorkerGroupError | LostActorError):
            return carrier.failure
    raised = cause if isinstance(cause, BaseException) else error
    if is_loss(raised):
        return _failure_of_loss(raised, str(error))
    types = sorted({name_of_type(inner) for inner in _errors_in(raised)})
    return Failure(FailureKind.GROUP_ERROR, str(error), " ".join(types))


def _failure_of_loss(loss: BaseException, text: str) -> Failure:
    """Return the failure that a loss is; the last line of its text says what may have happened."""
    losses = [error for error in _errors_in(loss) if isinstance(error, LOSS_ERRORS)]
    if any(map(was_killed_for_memory, losses)):
        hint = "out of memory on the host, so Ray killed processes: fewer or smaller trials at a time need less"
        return Failure(FailureKind.HOST_OUT_OF_MEMORY, f"{text}\n{hint}")
    if any(isinstance(error, LOSS_ERRORS) for error in _errors_of_workers(loss)):
        text += (
            "\na worker's process ended without raising an error: its node went down, it was killed, it crashed, or "
            "your train loop called os._exit()"
        )
    return Failure(FailureKind.LOST, text)


def failure_of_loop(error: BaseException, *, out_of_memory: bool, started_in: Path | None = None) -> Failure:
    """Return the failure that an error in a train loop is.

    Args:
        error: The error, with its traceback.
        out_of_memory: Whether it says that the device's memory is full.
        started_in: The folder in which the worker began, before Ray chose another.
    """
    text = text_of_loop(error, started_in)
    if out_of_memory:
        hint = "out of memory on the device: a smaller micro_batch or batch_size needs less"
        return Failure(FailureKind.OUT_OF_MEMORY, f"{text}\n{hint}")
    return Failure(FailureKind.LOOP_ERROR, text, fingerprint_of(error))


def unusable_report(problem: str) -> WorkerRaisedError:
    """Return the error of a trial that reports something that a sweep cannot use, or nothing at all."""
    return WorkerRaisedError(Failure(FailureKind.UNUSABLE_REPORT, f"the train loop's report is unusable: {problem}"))


def is_loss(failure: BaseException | None) -> bool:
    """Whether a TorchTrainer failed because processes or nodes are gone, not because of an error in what they ran."""
    if not LOST_WORKERS and isinstance(failure, TrainingFailedError):  # a loop's error ends a worker by a RuntimeError
        return not any(type(error) is RuntimeError for error in _errors_of_workers(failure))
    return any(isinstance(error, LOSS_ERRORS) for error in _errors_in(failure))


def text_of_loop(error: BaseException, started_in: Path | None = None) -> str:
    """Return the traceback of an error in a train loop. Its last line, which users see, says what happened.

    ``started_in`` is the folder in which the process began.
    """
    text = shortened(harmless("".join(traceback.format_exception(error)).rstrip()), MAX_ERROR)
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [frame for frame in frames if is_own_file(frame.filename)] or frames
    place = "".join(f" at {Path(frame.filename).name}:{frame.lineno} ({frame.line})" for frame in own_frames[-1:])
    message = shortened(harmless(message_of(error)), MAX_LINE)
    if not isinstance(error, Exception):
        description = " ".join([type(error).__name__, *message.split()])
        text += (
            f"\nyour train loop ended its process ({description}){place}: return to end a trial, or raise an "
            f"error to fail it"
        )
    elif isinstance(error, FileNotFoundError) and (hint := _hint_of_folder(error, started_in)):
        text += f"\n{harmless(hint)}"
    elif not message:
        text += f"\n{type(error).__name__} without a message, raised{place}"
    return text


def _hint_of_folder(error: FileNotFoundError, started_in: Path | None) -> str:
    """Return where a train loop has looked for a file of a relative path; "" if the path is a full one."""
    note = "the current folder of a train loop is empty at first, so a relative path does not lead to your files"
    if not isinstance(error.filename, str | bytes):
        return f"{last_line(message_of(error) or 'FileNotFoundError')} ({note})"
    path = Path(os.fsdecode(error.filename))
    if path.is_absolute():
        return ""
    full_path = f'Path(__file__).parent / "{path}"'
    if started_in is not None and (started_in / path).exists():
        full_path = str(started_in / path)
    return f"FileNotFoundError: there is no {str(path)!r}: {note}; give the full path, such as {full_path}"


def _errors_in(failure: BaseException | None) -> list[BaseException]:
    """Return an error that Ray or Ray Train raised, with that of the controller and those of the workers inside it."""
    controller_failure = getattr(failure, "controller_failure", None)
    return [error for error in (failure, controller_failure, *_errors_of_workers(failure)) if error is not None]


def _errors_of_workers(failure: BaseException | None) -> Iterable[BaseException]:
    return getattr(failure, "worker_failures", {}).values()
