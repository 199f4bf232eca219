"""What every view of a sweep has in common."""

from __future__ import annotations

from typing import Protocol

from gaudi_tune.sweep.record.events import Event
from gaudi_tune.sweep.record.sweep_state import SweepState


class View(Protocol):
    """Something that shows a sweep. What it raises is logged, and the sweep goes on."""

    def show(self, event: Event, state: SweepState) -> None:
        """Show an event, which ``state`` has applied already. Called on Tune's event loop: do not block it."""

    def tick(self, state: SweepState) -> None:
        """Do what is due. Called all the time while the sweep runs."""
