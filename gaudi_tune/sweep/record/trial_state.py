"""The state of one trial."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple

from pydantic import ConfigDict, TypeAdapter

from gaudi_tune.base import names
from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.sweep.record.events import Decision, Status

ENDED: tuple[Status, ...] = ("finished", "stopped early", "failed")
"""The statuses of trials that have ended for good."""


class SavedCheckpoint(NamedTuple):
    """A checkpoint that a trial wrote; it may have been deleted since."""

    place: str
    """Its folder, relative to the sweep's."""
    step: int
    point: tuple[float, ...]
    """The value of each objective at that step; NaN where one of them was not finite."""
    config: dict[str, Any]
    """The configuration with which it was trained until then; pbt changes it later."""
    report: int = 0
    """The number of the report that came with it, from 1."""

    @property
    def value(self) -> float:
        """The value of the first objective."""
        return self.point[0]


@dataclass(kw_only=True)
class TrialState:
    """A trial of the sweep, from its start on. The fields are also the keys of its snapshot."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}  # a field of another version is an error

    number: int
    """The number of the trial, from 1, the baseline."""
    trial_id: str
    """Tune's id. A trial that is proposed again after a crash has another one."""
    began_with: dict[str, Any]
    """The hyperparameters and the seed with which it was proposed."""
    config: dict[str, Any]
    """The hyperparameters and the seed with which it trains; pbt changes them."""
    best_config: dict[str, Any]
    """The hyperparameters and the seed of its best report."""
    status: Status = "running"
    reason: str = ""
    """Why it ended, or what was decided last."""
    failure: Failure | None = None
    """Why it failed; None if it has not."""
    decision: Decision = field(default_factory=lambda: Decision("continue"))
    """The decision that followed from its last report."""
    to_stop: bool = False
    """Whether a person asked that it end."""
    step: int = 0
    """The epoch or optimizer step of its last report."""
    reports: int = 0
    """How many reports it has made; those that it makes again after a failure count once."""
    last_point: tuple[float, ...] = ()
    """All objectives in its last report; empty if one of them was not finite, or there was no report."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Its last report."""
    curve: dict[int, float] = field(default_factory=dict)
    """Finite values of the first objective by epoch or step."""
    point: tuple[float, ...] = ()
    """All objectives in its best report; empty before there is one."""
    best_step: int = 0
    """The epoch or step of that report, the first of equal ones."""
    test_point: tuple[float, ...] = ()
    """All objectives on test data in that report; those that it does not have on test data are as in ``point``."""
    tested: bool = False
    """Whether the first objective of ``test_point`` is of test data."""
    constraints: dict[str, float] = field(default_factory=dict)
    """The soft constraints that it reported last, by name; above 0 means violated."""
    seconds_each: float | None = None
    """How long it trained from one report to the next, until its first report of finite values; None before that, and
    if the budget is in seconds, since then all trials cost the same."""
    checkpoints: list[SavedCheckpoint] = field(default_factory=list)
    """Its checkpoints, in the order in which they were written; some may have been deleted since."""
    to_save: SavedCheckpoint | None = None
    """What a checkpoint would have now, without a place: the last report that came with something to save, or an
    earlier one where a train loop saves with every few reports. None while there is nothing to save."""
    skips_saves: bool = False
    """Whether its train loop has reported without something to save."""
    safe_since: float = field(default_factory=time.monotonic)
    """The monotonic time of its last checkpoint, or of its last start. A crash would lose what came later."""

    @property
    def value(self) -> float | None:
        """The first objective in its last report; None where there is no ``last_point``."""
        return self.last_point[0] if self.last_point else None

    @property
    def best(self) -> float | None:
        """The first objective in its best report; None before there is one."""
        return self.point[0] if self.point else None

    @property
    def raised(self) -> bool:
        """Whether an error ended it; one that diverged has failed without an error."""
        return self.failure is not None and self.failure.kind != FailureKind.DIVERGED

    @property
    def confirms(self) -> int:
        """The number of the trial whose configuration it trains again; 0 for a trial of the search."""
        return int(self.began_with.get(names.CONFIRMS, 0))

    @property
    def name(self) -> str:
        """The name of the trial, and of its folder."""
        return trial_name(self.number)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended for good."""
        return self.status in ENDED

    @property
    def can_be_confirmed(self) -> bool:
        """Whether its configuration may be trained again: it has a finite value, and has not failed."""
        return self.best is not None and self.status != "failed"

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data, which is not copied."""
        return {
            **vars(self),
            "safe_since": 0.0,
            "failure": self.failure and self.failure.plain(),
            "decision": (*self.decision[:2], self.decision.failure and self.decision.failure.plain()),
            "checkpoints": [tuple(c) for c in self.checkpoints],
            "to_save": self.to_save and tuple(self.to_save),
        }

    @classmethod
    def from_snapshot(cls, snapshot: dict[str, Any]) -> TrialState:
        """Return the trial of a :meth:`snapshot`; what is not a snapshot raises a ValueError or KeyError."""
        status = snapshot["status"] if snapshot["status"] in (*ENDED, "paused") else "interrupted"
        return _checker().validate_python({**snapshot, "status": status})


@cache
def _checker() -> TypeAdapter[TrialState]:
    return TypeAdapter(TrialState)


def trial_name(number: int) -> str:
    """Return the name of a trial, and of its folder."""
    return f"trial-{number:03d}"


def number_in_name(name: str) -> int | None:
    """Return the number of the trial that has this name; None if it is not that of a trial."""
    digits = name.removeprefix("trial-")
    number = int(digits) if digits.isdecimal() else 0
    return number if number and trial_name(number) == name else None
