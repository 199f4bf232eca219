"""The median stopping rule: what is worse than the middle of the courses of trials that have ended, ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.policies.schedulers.fifo import Fifo

COMPLETED_NEEDED = 3
"""How many must have ended that got as far before a trial is held against them, as in Ray's own rule."""


class MedianRule(Fifo):
    """Ends a trial whose best value so far is worse than the median of the mean values, until then, of those completed.

    The rule of Vizier (Golovin et al., 2017), after the grace of the budget. Completed are trials that have ended
    without an error, also those that were stopped early, as far as they got. Ray's class with this rule pauses trials
    while it knows too few, and Tune would then start another trial actor for which there are no devices; and it keeps
    nothing for a resumed sweep.
    """

    _kept = ("_scores", "_completed")

    def __init__(self, budget: Budget, objective: Objective) -> None:
        super().__init__()
        self._budget, self._objective = budget, objective
        self._scores: dict[str, dict[int, float]] = {}
        """The scores (more is better) of each trial by epoch or step."""
        self._completed: set[str] = set()

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> str:
        """Hold the trial against those completed, at this epoch or step."""
        score, at = self._objective.score(self._objective.value_in(result)), self._budget.progress(result)
        if not math.isfinite(score):
            return TrialScheduler.STOP
        own = self._scores.setdefault(trial.trial_id, {})
        own[at] = score
        others = [scores for name in self._completed if max(scores := self._scores[name]) >= at]
        means = [fmean(seen) for scores in others if (seen := [s for when, s in scores.items() if when <= at])]
        if at < self._budget.grace or len(means) < COMPLETED_NEEDED or max(own.values()) >= median(means):
            return TrialScheduler.CONTINUE
        self.reasons[trial.trial_id] = f"worse than the median of {len(means)} others at {self._budget.unit} {at}"
        return TrialScheduler.STOP

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:
        """Hold others against this trial from now on."""
        if trial.trial_id in self._scores:  # it reported a finite value
            self._completed.add(trial.trial_id)
