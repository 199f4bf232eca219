"""A sweep's state, fed with events as a run feeds it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Mode, Objective, point_in
from gaudi_tune.devices.find import DEVICE_TYPES, Devices
from gaudi_tune.sweep.record.device_time import DeviceTime
from gaudi_tune.sweep.record.events import (
    CheckpointSaved,
    Decided,
    Decision,
    Outcome,
    Reported,
    SweepBegan,
    TrialBegan,
    TrialEnded,
    Verdict,
)
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import trial_name


class Fed:
    """A state, and short words for what happens to it."""

    def __init__(
        self,
        mode: Mode = "max",
        epochs: int = 4,
        trials: int = 8,
        kind: Any = "cpu",
        count: int = 2,
        confirm: int = 0,
        seeds: int = 0,
        most_seeds: int = 0,
        others: Sequence[Objective] = (),
        objectives: Sequence[Objective] = (),
        budget: Budget | None = None,
    ) -> None:
        """The objective is a score and the budget is epochs, unless ``objectives`` and ``budget`` say otherwise."""
        device_time = DeviceTime(Devices(DEVICE_TYPES[kind], (count,), "for a test"))
        objectives, budget = objectives or [Objective("score", mode), *others], budget or Budget(epochs=epochs)
        self.state = SweepState(objectives, budget, trials, device_time, confirm, seeds, most_seeds)
        self.state.apply(SweepBegan())

    def begin(self, *numbers: int, **config: Any) -> None:
        for number in numbers:
            self.state.apply(TrialBegan(trial=number, trial_id=f"id{number}", config={"x": 0.5, **config}))

    def report(
        self,
        number: int,
        step: int,
        value: float,
        verdict: Verdict = "continue",
        count: int = 0,
        behind: int | None = 0,
        step_s: float | None = None,
        **metrics: Any,
    ) -> None:
        """Report a value; ``count`` is the number of the trial's report, of which a checkpoint is ``behind``."""
        told = {"score": value, "epoch": step, **metrics}
        if step_s is not None:
            told[names.STEP_SECONDS] = step_s
        self.tell(number, told, count=count, behind=behind)
        self.state.apply(Decided(trial=number, decision=Decision(verdict, "for a test")))

    def tell(self, number: int, result: Mapping[str, Any], **more: Any) -> Reported:
        """Report all that a train loop reports, without a decision."""
        report = Reported(
            trial=number,
            step=self.state.budget.progress(result),
            point=point_in(self.state.objectives, result),
            metrics=result,
            config=self.state.trials[number].config,
            **more,
        )
        self.state.apply(report)
        return report

    def save(self, number: int) -> None:
        """Save the last report, in a folder named after its step."""
        step = self.state.trials[number].step
        self.state.apply(CheckpointSaved(trial=number, place=f"{trial_name(number)}/checkpoint_{step:06d}"))

    def end(self, number: int, outcome: Outcome = "finished", reason: str = "", raised: bool = False) -> None:
        """End a trial; one that has failed without raising an error has diverged."""
        if outcome == "failed":
            self.fail(number, Failure(FailureKind.LOOP_ERROR if raised else FailureKind.DIVERGED, reason))
        else:
            self.state.apply(TrialEnded(trial=number, outcome=outcome, reason=reason))

    def fail(self, number: int, failure: Failure) -> None:
        self.state.apply(TrialEnded(trial=number, outcome="failed", reason=failure.text, failure=failure))

    def trial(
        self, number: int, *scores: float, outcome: Outcome | None = "finished", reason: str = "", **config: Any
    ) -> None:
        """A trial from its beginning to its end; None: it still runs."""
        self.begin(number, **config)
        for step, score in enumerate(scores, start=1):
            self.report(number, step, score)
        if outcome is not None:
            self.end(number, outcome, reason, raised=outcome == "failed" and not any(map(math.isnan, scores)))
