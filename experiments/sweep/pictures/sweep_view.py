"""What the pictures and the report show of a sweep: plain data of one moment, for a thread of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from experiments.sweep.outcome import Outcome
from experiments.sweep.search.model_study import ATTR_FAILURE

if TYPE_CHECKING:
    from experiments.sweep.ledger import Ledger
    from experiments.sweep.plan import Plan

Status: TypeAlias = Outcome | Literal["running", "interrupted"]

COLOURS: dict[Status, str] = {
    "finished": "#1f6fb4",
    "stopped early": "#e8a33d",
    "failed": "#c9352b",
    "running": "#2a9d6f",
    "interrupted": "#8b6fb5",
}
"""Of a trial in every picture and in the table, told apart with impaired colour vision as well; in this order."""
INK, GRID = "#2b3440", "#e6eaf0"
"""Of text and thin lines, and of the lines behind."""


class NothingToDrawError(Exception):
    """A picture cannot be drawn (yet); the message says what is missing."""


@dataclass(frozen=True, kw_only=True)
class ShownTrial:
    """A trial of the sweep."""

    number: int
    """From 1, the baseline, as everywhere."""
    status: Status
    recorded: FrozenTrial
    """The trial in the study: its hyperparameters and reports."""
    best: float | None
    """The best value it reported; None if it reported no finite one."""
    seconds: float
    """How long it had its devices."""

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Epoch (or step) and value of each report, finite ones."""
        reports = sorted(self.recorded.intermediate_values.items())
        return [(step, value) for step, value in reports if math.isfinite(value)]

    @property
    def failure(self) -> str:
        """Why it failed; empty if it did not."""
        return str(self.recorded.user_attrs.get(ATTR_FAILURE, ""))


@dataclass(frozen=True, kw_only=True)
class SweepView:
    """A sweep at one moment."""

    plan: Plan
    running: bool
    """Whether the sweep goes on."""
    recorded: Sequence[FrozenTrial]
    """All trials of the study, those before a resume included."""
    ledger: Ledger
    summary: Mapping[str, Any]
    """As in summary.json."""
    at: float = field(default_factory=time.time)
    """Clock time."""

    @property
    def maximize(self) -> bool:
        """Whether more of the metric is better."""
        return self.plan.experiment.mode == "max"

    @cached_property
    def trials(self) -> list[ShownTrial]:
        """All trials by number."""
        # Those that somebody put in the study's queue are none of the sweep's.
        proposed = [trial for trial in self.recorded if trial.state != TrialState.WAITING]
        return [self._shown(number, trial) for number, trial in enumerate(proposed, start=1)]

    @cached_property
    def compared(self) -> list[ShownTrial]:
        """The trials that pictures of hyperparameters compare: finished and stopped ones that reported a value."""
        ended = [trial for trial in self.trials if trial.status in ("finished", "stopped early")]
        return [trial for trial in ended if trial.best is not None]

    @cached_property
    def study(self) -> optuna.Study:
        """A study in memory in which each compared trial is complete with the best value it reached.

        Optuna's pictures leave out every other trial, and most trials of a sweep are stopped early.
        """
        study = optuna.create_study(direction="maximize" if self.maximize else "minimize")
        study.add_trials(
            [
                create_trial(
                    value=trial.best,
                    params=trial.recorded.params,
                    distributions=trial.recorded.distributions,
                    system_attrs=trial.recorded.system_attrs,  # soft constraints
                )
                for trial in self.compared
            ]
        )
        return study

    def _shown(self, number: int, trial: FrozenTrial) -> ShownTrial:
        best = max if self.maximize else min
        return ShownTrial(
            number=number,
            status=status_of(trial, self.running),
            recorded=trial,
            best=best((v for v in trial.intermediate_values.values() if math.isfinite(v)), default=None),
            seconds=sum(self.ledger.by_trial.get(number, {}).values()),
        )


def status_of(trial: FrozenTrial, sweep_runs: bool) -> Status:
    """Return what became of a trial of the study."""
    ended: dict[TrialState, Outcome] = {
        TrialState.COMPLETE: "finished",
        TrialState.PRUNED: "stopped early",
        TrialState.FAIL: "failed",
    }
    return ended.get(trial.state) or ("running" if sweep_runs else "interrupted")


def by_status(trials: Sequence[ShownTrial]) -> dict[Status, list[ShownTrial]]:
    """Return the trials of each status that there is."""
    groups = {status: [trial for trial in trials if trial.status == status] for status in COLOURS}
    return {status: group for status, group in groups.items() if group}


def line_width(lines: int) -> float:
    """Return how thick to draw so many lines, in pixels."""
    return 1.4 if lines <= 100 else 0.7
