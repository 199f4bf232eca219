"""The interface of every view of a sweep."""

from __future__ import annotations

from typing import Protocol

from gaudi_tune.sweep.record.events import Event
from gaudi_tune.sweep.record.sweep_state import SweepState


class View(Protocol):
    """Something that shows a sweep. Its errors are logged, and the sweep goes on."""

    def show(self, event: Event, state: SweepState) -> None:
        """Show an event, which ``state`` has applied already. Tune's event loop calls this: do not block it."""

    def tick(self, state: SweepState) -> None:
        """Do what is due. Tune's event loop calls this at each of its steps."""
