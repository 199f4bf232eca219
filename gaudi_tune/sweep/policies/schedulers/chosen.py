"""The base of all schedulers: what a sweep asks of one besides what Tune asks."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

from ray.tune.schedulers import TrialScheduler


class ChosenScheduler(TrialScheduler):
    """A scheduler that a user can choose; in front of Ray's class among the bases."""

    _snapshot_attributes: ClassVar[Mapping[str, str]] = {}
    """The attributes that a sweep's snapshots have, by their names there; their values are plain data."""

    pauses_unasked = False
    """Whether it pauses trials at other times than in answer to their report, as some of Ray's schedulers do."""

    def __init__(self, **ray_arguments: Any) -> None:
        super().__init__(**ray_arguments)
        self.reasons: dict[str, str] = {}
        """Why trials were stopped or paused by their last report, by Tune's id; whoever reads a reason removes it."""

    @property
    def promoted(self) -> int:
        """How many paused trials are to continue, and do not yet."""
        return 0

    def expect(self, trials: int) -> None:
        """Take another number of trials for the whole sweep."""

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know. It is not copied, so the caller must write it at once."""
        return {key: getattr(self, attribute) for key, attribute in self._snapshot_attributes.items()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned, before the trials are added again."""
        state = copy.deepcopy({key: state[key] for key in self._snapshot_attributes})
        for key, attribute in self._snapshot_attributes.items():
            setattr(self, attribute, state[key])
