"""Which failures of a trial are worth another try."""

from __future__ import annotations

from typing import Any

from ray.air.execution._internal import RayActorManager
from ray.exceptions import RayActorError, RayTaskError
from ray.tune.experiment import Trial

from trainables.runtime.group_errors import GONE, LostTooOftenError, WorkerRaisedError, text_of

FINAL = (WorkerRaisedError, LostTooOftenError)
"""An error that would come again, and the loss that was one too many for the trial actor, which counts those."""


def leave_errors_of_workers() -> None:
    """Have Tune try again after lost trial actors and nodes, and not after an error that is :data:`FINAL`.

    Tune's ``max_failures`` counts both alike, and no callback comes between an error and what Tune makes of it (Ray
    2.60), so the method of its trials that is told of errors is wrapped. Trials of other trainables are left alone.
    """
    tell = Trial.handle_error
    if getattr(tell, "leaves_errors_of_workers", False):
        return

    def handle_error(self: Trial, exc: Any = None) -> None:
        tell(self, exc)
        if isinstance(getattr(exc, "cause", None), FINAL):
            self.max_failures = 0

    handle_error.leaves_errors_of_workers = True  # type: ignore[attr-defined]
    Trial.handle_error = handle_error


def take_killed_actors_for_lost() -> None:
    """Have Tune try again after a trial actor that is gone in a way that Tune does not know.

    Ray says OutOfMemoryError of an actor that it has killed because the host's memory is full. Tune (Ray 2.60) knows
    RayActorError alone, and ends the whole sweep with "Caught unexpected exception" at any other, so the method of its
    actor manager that is told is wrapped.
    """
    tell = RayActorManager._actor_task_failed
    if getattr(tell, "takes_killed_actors_for_lost", False):
        return

    def _actor_task_failed(self: RayActorManager, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, GONE) and not isinstance(exception, (RayActorError, RayTaskError)):
            exception = RayActorError(error_msg=text_of(exception))
        tell(self, tracked_actor_task, exception)

    _actor_task_failed.takes_killed_actors_for_lost = True  # type: ignore[attr-defined]
    RayActorManager._actor_task_failed = _actor_task_failed
