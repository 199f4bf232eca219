"""What happens in a sweep, as typed events.

``on_ray`` makes them from what Ray says, :class:`~gaudi_tune.sweep.record.sweep_state.SweepState` applies them, and the
views in ``show`` read them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from gaudi_tune.base.failure import Failure

Outcome: TypeAlias = Literal["finished", "stopped early", "failed"]
"""How a trial has ended, in the words that the terminal, MLflow, summary.json and pictures share."""
Status: TypeAlias = Outcome | Literal["running", "paused", "interrupted"]
"""The state of a trial. An interrupted trial continues when the sweep is resumed."""
Verdict: TypeAlias = Literal["continue", "pause"] | Outcome
"""What follows from a report: the trial continues, waits, or ends with that outcome."""
HUNG_UP, CTRL_C, PREEMPTED, TERMINATED = 129, 130, 138, 143
"""Exit statuses of a process that SIGHUP, SIGINT or SIGTERM ended, as shells have them."""


class Ending(NamedTuple):
    """Why a sweep ends before its last trial has."""

    why: str
    status: int
    """The exit status of the process; 0 if the user asked for this end beforehand."""
    at_once: bool = False
    """Whether the sweep ends without waiting for running trials."""
    option: str = ""
    """The option that asked for it. A resumed sweep goes without that option, or it would end at once."""


class Decision(NamedTuple):
    """What follows from a report, and why."""

    verdict: Verdict
    reason: str = ""
    failure: Failure | None = None
    """Why the trial has failed, if the verdict says so."""


BY_HAND = Decision("stopped early", "stopped by hand")
"""What follows from the next report of a trial that a person wants stopped."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened."""

    time: float = field(default_factory=time.time)
    """Clock time, seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class SweepBegan(Event):
    """The sweep begins in this process, for the first time or resumed."""


@dataclass(frozen=True, kw_only=True)
class TrialEvent(Event):
    """Something that happened to a trial."""

    trial: int
    """The trial's number in the sweep, from 1, the baseline. A resumed sweep gives the same number to the same
    configuration; Tune's id may differ."""


@dataclass(frozen=True, kw_only=True)
class TrialBegan(TrialEvent):
    """A trial has a worker group: at its start, after a pause, and after its trial actor was lost."""

    trial_id: str
    config: Mapping[str, Any]
    """Hyperparameters and seed."""


@dataclass(frozen=True, kw_only=True)
class Reported(TrialEvent):
    """A trial reported."""

    step: int
    """Epochs or optimizer steps finished, in the unit of the budget."""
    point: tuple[float, ...]
    """The value of each objective, which may be NaN or infinite."""
    metrics: Mapping[str, Any]
    """All that the train loop reported: numbers and texts by name."""
    config: Mapping[str, Any]
    """The configuration that it trained with; pbt changes it while a trial runs."""
    count: int = 0
    """The number of the report among those of the trial, from 1; a report that is made again has the same number."""
    starts_over: bool = False
    """Whether the trial would begin again after a pause, because its train loop does not continue from checkpoints."""
    behind: int | None = 0
    """How many reports earlier the train loop wrote what a checkpoint of this report would have; None if it has given
    nothing to save so far."""


@dataclass(frozen=True, kw_only=True)
class Decided(TrialEvent):
    """A scheduler or a rule decided what follows from a trial's last report."""

    decision: Decision


@dataclass(frozen=True, kw_only=True)
class CheckpointSaved(TrialEvent):
    """A trial wrote a checkpoint, of its last report or of the earlier one that came with something to save."""

    place: str
    """Its folder, relative to the sweep's."""


@dataclass(frozen=True, kw_only=True)
class TrialRecovered(TrialEvent):
    """A trial lost its trial actor, and continues from its last checkpoint or from its beginning."""


@dataclass(frozen=True, kw_only=True)
class PlaceChanged(TrialEvent):
    """A trial is to continue with more or fewer devices, from the checkpoint that it writes now."""

    workers: int
    """The number of workers after the move."""


@dataclass(frozen=True, kw_only=True)
class TrialEnded(TrialEvent):
    """A trial has ended for good."""

    outcome: Outcome
    reason: str
    """The text of the failure, else the reason for the decision that ended it."""
    failure: Failure | None = None
    """Why it failed; None if it has not."""


@dataclass(frozen=True, kw_only=True)
class Steered(Event):
    """A person asked something of the running sweep."""

    request: str
    """What the person asked, in words."""


@dataclass(frozen=True, kw_only=True)
class StopAsked(Steered):
    """A trial is to end at its next report, or at once if it waits."""

    trial: int


@dataclass(frozen=True, kw_only=True)
class TrialsAsked(Steered):
    """The search is to have more trials, or no more than it has begun."""

    num_trials: int
    """The new number of trials, including those that have begun."""


@dataclass(frozen=True, kw_only=True)
class SearchCut(Event):
    """No more trials begin: those that run, and the confirmation, need the time that is left."""

    num_trials: int
    """How many the search has had."""


@dataclass(frozen=True, kw_only=True)
class SearchExhausted(SearchCut):
    """No more trials begin, also after a resume: what proposes them has no more."""

    source: str
    """What proposed them."""


@dataclass(frozen=True, kw_only=True)
class SweepEnding(Event):
    """The sweep ends before its last trial has."""

    ending: Ending


@dataclass(frozen=True, kw_only=True)
class EndingWithdrawn(Event):
    """The sweep continues after all, because nothing can end it here."""


@dataclass(frozen=True, kw_only=True)
class SweepEnded(Event):
    """The sweep is over."""

    summary: Mapping[str, Any]
    """The contents of summary.json."""
