"""What a tracker is, and those that a sweep has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.trackers.mlflow_tracker import MlflowTracker
from gaudi_tune.show.view import View


class Tracker(View, Protocol):
    """A view that other people look at later, in another program."""

    name: str
    """What the summary calls it, for example "mlflow"."""

    @property
    def address(self) -> str:
        """Where a person looks at the sweep; final once the sweep has ended."""

    @property
    def hint(self) -> str:
        """What must be done before that address opens; empty if nothing."""

    def load_line(self) -> str | None:
        """Return the Python that loads the best trial's model from there; None if it is not there."""

    def close(self) -> None:
        """Deliver what is left, as far as that is possible now. Called once, after the last event."""


def in_words(tracker: Tracker) -> str:
    """Return a tracker's address, and after two spaces what must be done before it opens."""
    return f"{tracker.address}  ({tracker.hint})" if tracker.hint else tracker.address


TRACKERS: dict[str, Callable[[Plan], Tracker]] = {MlflowTracker.name: MlflowTracker}
"""How each is made, by name. Every sweep has all of them; they open nothing before it begins."""
