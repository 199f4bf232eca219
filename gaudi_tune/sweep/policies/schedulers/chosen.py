"""What a sweep asks of its scheduler besides what Tune asks."""

from __future__ import annotations

import copy
from typing import Any

from ray.tune.schedulers import TrialScheduler


class ChosenScheduler(TrialScheduler):
    """A scheduler that a user can choose; in front of Ray's class among the bases."""

    _kept: tuple[str, ...] = ()
    """The attributes, plain data, that a sweep's snapshots keep."""

    pauses_unasked = False
    """Whether trials are paused otherwise than by the answer to their report, as some of Ray's schedulers do."""

    def __init__(self, **of_rays: Any) -> None:
        super().__init__(**of_rays)
        self.reasons: dict[str, str] = {}
        """Why a trial was stopped or paused by its last report, by Tune's id; the reader removes it."""

    @property
    def promoted(self) -> int:
        """How many paused trials are to go on, and do not yet."""
        return 0

    def expect(self, trials: int) -> None:
        """Take another number of trials in the whole sweep."""

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know, as plain data that is written at once: it is not copied."""
        return {name: self.__dict__[name] for name in self._kept}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned, before the trials are added again."""
        self.__dict__.update(copy.deepcopy({name: state[name] for name in self._kept}))
