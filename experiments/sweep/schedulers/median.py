"""The median stopping rule: what is worse than the middle of the others' courses ends."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from experiments.sweep.budget import Budget
from experiments.sweep.schedulers.in_order import InOrder

OTHERS_NEEDED = 3
"""How many others must have got as far before a trial is held against them, as in Ray's own rule."""


class MedianRule(InOrder):
    """Ends a trial whose best value so far is worse than the median of the others' mean values until then.

    The rule of Vizier (Golovin et al., 2017). Ray's class with this rule pauses trials while it knows too few, and Tune
    would then start another trial actor for which there are no devices; and it keeps nothing for a resumed sweep.
    """

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget
        self._metric = ""
        self._sign = 1.0
        self._scores: dict[str, dict[int, float]] = {}
        """The scores (more is better) of each trial by epoch or step."""

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take the objective from Tune."""
        self._metric, self._sign = metric or "", -1.0 if mode == "min" else 1.0
        return True

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> str:
        """Hold the trial against the others at this epoch or step."""
        score, at = self._sign * float(result.get(self._metric, math.nan)), self._budget.progress(result)
        if not math.isfinite(score):
            return TrialScheduler.STOP
        own = self._scores.setdefault(trial.trial_id, {})
        own[at] = score
        others = [scores for name, scores in self._scores.items() if name != trial.trial_id and max(scores) >= at]
        means = [fmean(seen) for scores in others if (seen := [s for when, s in scores.items() if when <= at])]
        if len(means) < OTHERS_NEEDED or max(own.values()) >= median(means):
            return TrialScheduler.CONTINUE
        return TrialScheduler.STOP

    def debug_string(self) -> str:
        """Return how many trials it knows."""
        return f"median stopping rule: {len(self._scores)} trials"

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know."""
        return {"scores": copy.deepcopy(self._scores)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned."""
        self._scores = copy.deepcopy(state["scores"])
