"""The clock of simulated groups, and what a trial actor knows that is one of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gaudi_tune.base.trial_place import Place

USUAL = Place(1)
"""What each trial begins on."""


class Clock:
    """A clock that stands still where it is not put forward, so that the same is simulated each time."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now(self) -> float:
        """Return the seconds of the clock."""
        return self._seconds

    def wait(self, until: float) -> None:
        """Put the clock forward."""
        self._seconds = max(self._seconds, until)


@dataclass(eq=False)
class Task:
    """What a trial actor is asked."""

    method: str
    args: tuple[Any, ...] = ()
    tell: Callable[[Any], None] | None = None
    """Takes the answer; None where nobody waits for it any more."""
    began: float = 0.0


@dataclass(eq=False)
class TrialActor:
    """What a WarmTrainable knows."""

    config: dict[str, Any]
    storage: Any
    tasks: deque[Task] = field(default_factory=deque)
    """What it is to do; it is at the first."""
    epoch: int = 0
    saved_at: int = 0
    """The epoch of its last checkpoint."""
    report: dict[str, Any] = field(default_factory=dict)
    """The last."""
    place: Place = USUAL
    next_place: Place | None = None
    group: Place | None = None
    """What its group was made for; None while it has none."""
    on: tuple[int, ...] = ()
    """The devices of its group."""
    booked: tuple[int, ...] = ()
    """Devices that its group keeps from others while it waits for its own: some of these, and lower ones."""

    def begin(self, config: dict[str, Any], epoch: int = 0) -> None:
        """Take a trial that has so many epochs."""
        self.config, self.epoch, self.saved_at = config, epoch, epoch
        self.place, self.next_place = USUAL, None
