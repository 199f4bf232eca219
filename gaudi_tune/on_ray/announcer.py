"""The path of an event: the record takes it first, and then the views and trackers show it."""

from __future__ import annotations

from collections.abc import Sequence

from gaudi_tune.base.errors import errors_are_logged
from gaudi_tune.show.trackers.tracker import Tracker, in_words
from gaudi_tune.show.view import View
from gaudi_tune.sweep.record.events import Event
from gaudi_tune.sweep.record.sweep_state import SweepState

PROBLEM = "an error while showing the sweep; the sweep continues"


class Announcer:
    """Applies events to the state and shows them. An error while showing is logged, and the sweep goes on."""

    def __init__(self, state: SweepState, trackers: Sequence[Tracker]) -> None:
        """Begin without views: they are appended to ``views`` as they are made."""
        self.state, self.trackers = state, list(trackers)
        self.views: list[View] = []

    def tell(self, event: Event) -> None:
        """Apply an event to the state, and show it."""
        self.state.apply(event)
        self.show(event)

    def show(self, event: Event) -> None:
        """Show an event that the state has applied already."""
        for view in [*self.views, *self.trackers]:  # in this order: a tracker sends the last report when it is drawn
            with errors_are_logged(PROBLEM):
                view.show(event, self.state)

    def tick(self) -> None:
        """Let each view and tracker do what is due."""
        for view in [*self.views, *self.trackers]:
            with errors_are_logged(PROBLEM):
                view.tick(self.state)

    def tracker_address(self) -> str:
        """Return where a person finds the sweep in its first tracker; "" if it has no tracker."""
        return in_words(self.trackers[0]) if self.trackers else ""

    def flush_trackers(self) -> None:
        """Return once all that the trackers were shown is on disk."""
        for tracker in self.trackers:
            with errors_are_logged(PROBLEM):
                tracker.flush()

    def close_trackers(self) -> list[str]:
        """Let each tracker deliver what is left, and return what they never get, in words."""
        problems = []
        for tracker in self.trackers:
            with errors_are_logged(PROBLEM):
                problems.append(tracker.close())
        return [problem for problem in problems if problem]
