"""Which failures of a trial are worth another try."""

from __future__ import annotations

from typing import Any

from ray.tune.experiment import Trial

from trainables.runtime.group_errors import LostTooOftenError, WorkerRaisedError

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
