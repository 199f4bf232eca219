"""The median stopping rule: a trial ends if it is worse than the median of the trials that have ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, median
from typing import Any, ClassVar

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.policies.schedulers.fifo import Fifo

MIN_COMPLETED = 3
"""A trial is compared once so many trials have completed that got as far, as in Ray's own rule."""


class MedianRule(Fifo):
    """Ends a trial if its best value so far is worse than the median of the averages of completed trials.

    This is the rule of Vizier (Golovin et al., 2017), after the grace period of the budget. The average of a completed
    trial is that of its values up to the same epoch or step. Trials are completed if they ended without an error, also
    if they were stopped early; those that did not get as far do not count.

    Ray's class with this rule pauses trials while it knows too few, and Tune would then start another trial actor for
    which there are no devices; and it has nothing for a resumed sweep.
    """

    _snapshot_attributes: ClassVar[Mapping[str, str]] = {"_scores": "_scores", "_completed": "_completed"}

    def __init__(self, budget: Budget, objective: Objective) -> None:
        super().__init__()
        self._budget, self._objective = budget, objective
        self._scores: dict[str, dict[int, float]] = {}
        """The scores (more is better) of each trial by epoch or step."""
        self._completed: set[str] = set()

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> str:
        """Compare the trial with the completed ones, at this epoch or step."""
        score, step = self._objective.score(self._objective.value_in(result)), self._budget.progress(result)
        if not math.isfinite(score):
            return TrialScheduler.STOP
        scores = self._scores.setdefault(trial.trial_id, {})
        scores[step] = score
        averages = [
            fmean(values)
            for name in self._completed
            if max(self._scores[name]) >= step and (values := _values_until(step, self._scores[name]))
        ]
        if step < self._budget.grace or len(averages) < MIN_COMPLETED or max(scores.values()) >= median(averages):
            return TrialScheduler.CONTINUE
        self.reasons[trial.trial_id] = f"worse than the median of {len(averages)} others at {self._budget.unit} {step}"
        return TrialScheduler.STOP

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:
        """Compare other trials with this one from now on."""
        if trial.trial_id in self._scores:  # it reported a finite value
            self._completed.add(trial.trial_id)


def _values_until(step: int, scores: Mapping[int, float]) -> list[float]:
    return [score for earlier_step, score in scores.items() if earlier_step <= step]
