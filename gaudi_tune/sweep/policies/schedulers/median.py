"""The median stopping rule: a trial ends if it is worse than the median of the trials that have ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, median

from typing_extensions import override

from gaudi_tune.sweep.policies.schedulers.scheduler import CONTINUE, Scheduler
from gaudi_tune.sweep.record.events import Decision, Reported
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

MIN_COMPLETED = 3
"""A trial is compared once so many trials have completed that got as far, as in Ray's own rule."""


class MedianRule(Scheduler):
    """Ends a trial if its best value so far is worse than the median of the averages of completed trials.

    This is the rule of Vizier (Golovin et al., 2017), after the grace period of the budget. The average of a completed
    trial is that of its values up to the same epoch or step. Trials are completed if they ended without an error, also
    if they were stopped early; those that did not get as far do not count. All of it is in the record.
    """

    @override
    def decide(self, state: SweepState, trial: TrialState, report: Reported) -> Decision:
        """Compare the trial with the completed ones, at this epoch or step."""
        objective, step = self._objectives[0], report.step
        if not math.isfinite(report.point[0]):
            return Decision("stopped early", f"its {objective.name} is not finite")
        averages = [
            objective.score(fmean(_values_until(step, trial_state.curve)))
            for trial_state in state.searched
            if trial_state.has_ended
            and not trial_state.raised
            and min(trial_state.curve, default=math.inf) <= step <= max(trial_state.curve)
        ]
        best_score = max(objective.score(value) for value in trial.curve.values())
        if step < self._budget.grace or len(averages) < MIN_COMPLETED or best_score >= median(averages):
            return CONTINUE
        return Decision(
            "stopped early", f"worse than the median of {len(averages)} others at {self._budget.unit} {step}"
        )


def _values_until(step: int, curve: Mapping[int, float]) -> list[float]:
    return [value for earlier_step, value in curve.items() if earlier_step <= step]
