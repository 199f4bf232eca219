"""The interface of a tracker, and the list of those that a sweep has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.trackers.mlflow_tracker import MlflowTracker
from gaudi_tune.show.view import View


class Tracker(View, Protocol):
    """A view that people look at later, in another program.

    A new one is a class in a file of its own here, which :data:`TRACKERS` names:

    >>> from gaudi_tune.sweep.record.events import Reported
    >>> class Printed:
    ...     name, address, hint = "printed", "this terminal", ""
    ...
    ...     def show(self, event, state):
    ...         if isinstance(event, Reported):
    ...             print(f"trial {event.trial:03d}, step {event.step}: {event.point[0]}")
    ...
    ...     def tick(self, state):
    ...         pass  # nothing is due from time to time
    ...
    ...     def flush(self):
    ...         pass  # everything is there at once
    ...
    ...     def load_line(self):
    ...         return None
    ...
    ...     def close(self):
    ...         return ""
    >>> tracker = Printed()
    >>> tracker.show(Reported(trial=1, step=2, point=(0.25,), metrics={"score": 0.25}, config={"x": 0.5}), state=None)
    trial 001, step 2: 0.25
    """

    name: str
    """The name in the summary, for example "mlflow"."""

    @property
    def address(self) -> str:
        """The address at which a person finds the sweep. It no longer changes once the sweep has ended."""

    @property
    def hint(self) -> str:
        """What to do before the address opens; "" if nothing."""

    def load_line(self) -> str | None:
        """Return a line of Python that loads the best trial's model from the tracker; None if it has no model."""

    def flush(self) -> None:
        """Return once everything that was shown is on disk. Any thread calls this."""

    def close(self) -> str:
        """Deliver what is left, as far as that is possible now. This is called once, after the last event.

        Returns:
            What the tracker never gets, because the user's own code failed, in words; "" if nothing.
        """


def in_words(tracker: Tracker) -> str:
    """Return a tracker's address, and after two spaces what to do before it opens."""
    return f"{tracker.address}  ({tracker.hint})" if tracker.hint else tracker.address


TRACKERS: dict[str, Callable[[Plan], Tracker]] = {MlflowTracker.name: MlflowTracker}
"""The functions that make the trackers, by name. Every sweep has all of them. They open nothing before it begins."""
