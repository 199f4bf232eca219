"""How well the order of trials at an early report predicts their later order: was the first rung too early?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.record.trial_state import TrialState

MIN_TRIALS = 9
"""The fewest trials that must have got as far as the orders are compared."""
BEST_SHARE = 3
"""One in so many trials counts as one of the best, as at a rung."""
ENOUGH = 0.8
"""The share of the later best that a rung should keep."""
MAX_STEPS = 60
"""The most steps that are compared, spread evenly."""


class EarlyOrder(NamedTuple):
    """The orders of the trials that have reached a step, before it."""

    trials: int
    """How many have reached it."""
    until: int
    """The step, the last one that enough trials have reached."""
    best: int
    """How many of them count as the best there."""
    kept: dict[int, int]
    """How many of these are among the best at each earlier step."""

    def in_words(self, unit: str, rungs: Sequence[int]) -> str:
        """Return what the first rung keeps of the later best, and what to do if that is little; "" without rungs."""
        first = next((rung for rung in rungs if rung in self.kept), None)
        if first is None:
            return ""
        share = self.kept[first] / self.best
        fact = (
            f"the first rung, {unit} {first}, keeps {self.kept[first]} of the {self.best} that are best at {unit} "
            f"{self.until}, of {self.trials} trials that got there ({share:.0%})"
        )
        # A step that keeps more than a later one does so by chance.
        last_poor_step = max((step for step, kept in self.kept.items() if kept / self.best < ENOUGH), default=0)
        later = next((step for step in self.kept if step > last_poor_step), None)
        if share >= ENOUGH or later is None:
            return fact
        return f"{fact}: lengthen it with --grace {later}"


def early_order(trials: Sequence[TrialState], objective: Objective) -> EarlyOrder | None:
    """Return how the orders at earlier steps agree with the order at the last step that enough trials have reached.

    A trial counts at each step with the best that it has reached until then. None if too few trials got beyond their
    first report.
    """
    ends = sorted((max(trial.curve) for trial in trials if trial.curve), reverse=True)
    if len(ends) < MIN_TRIALS:
        return None
    until = ends[MIN_TRIALS - 1]
    compared = [trial for trial in trials if trial.curve and max(trial.curve) >= until]
    first = max(min(trial.curve) for trial in compared)
    steps = sorted({step for trial in compared for step in trial.curve if first <= step < until})
    if not steps:
        return None
    best = math.ceil(len(compared) / BEST_SHARE)
    final = np.array([score_until(trial, until, objective) for trial in compared])
    leaders, kept = set(np.argsort(-final, kind="stable")[:best].tolist()), {}
    for step in steps[:: math.ceil(len(steps) / MAX_STEPS)]:
        early = np.array([score_until(trial, step, objective) for trial in compared])
        kept[step] = len(leaders & set(np.argsort(-early, kind="stable")[:best].tolist()))
    return EarlyOrder(len(compared), until, best, kept)


def score_until(trial: TrialState, step: int, objective: Objective) -> float:
    """Return the best score of a trial up to a step, or at its first report if that came later."""
    limit = max(step, min(trial.curve))
    return max(objective.score(value) for at, value in trial.curve.items() if at <= limit)
