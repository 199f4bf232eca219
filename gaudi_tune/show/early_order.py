"""How well the order of trials at the first rung predicts their later order: was it too early?"""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def first_rung_too_early(trials: Sequence[TrialState], objective: Objective, unit: str, rungs: Sequence[int]) -> str:
    """Return that the first rung keeps too few of the trials that are best later, and which step would keep more; ""
    if it keeps enough, no step would, or too few trials got beyond it.

    The orders are compared at the last step that enough trials have reached. A trial counts at each step with the best
    that it has reached until then.
    """
    ends = sorted((max(trial.curve) for trial in trials if trial.curve), reverse=True)
    until = ends[MIN_TRIALS - 1] if len(ends) >= MIN_TRIALS else 0
    compared = [trial for trial in trials if trial.curve and max(trial.curve) >= until]
    steps = sorted({step for trial in compared for step in trial.curve if step < until})
    steps = steps[:: math.ceil(len(steps) / MAX_STEPS) or 1]
    rung = next((rung for rung in rungs if rung in steps), None)
    if rung is None:
        return ""
    num_best = math.ceil(len(compared) / BEST_SHARE)
    best = _best(compared, until, objective, num_best)
    kept = {step: len(best & _best(compared, step, objective, num_best)) for step in steps}
    # A step that keeps more than a later one does so by chance.
    last_poor_step = max((step for step, count in kept.items() if count / num_best < ENOUGH), default=0)
    later = next((step for step in steps if step > last_poor_step), None)
    if kept[rung] / num_best >= ENOUGH or later is None:
        return ""
    return (
        f"the first rung, {unit} {rung}, keeps {kept[rung]} of the {num_best} that are best at {unit} {until}, of "
        f"{len(compared)} trials that got there: lengthen it with --grace {later}"
    )


def _best(trials: Sequence[TrialState], step: int, objective: Objective, count: int) -> set[int]:
    """Return the places of the trials that are best up to a step, or at their first report if that came later."""
    scores = [
        max(objective.score(value) for at, value in trial.curve.items() if at <= max(step, min(trial.curve)))
        for trial in trials
    ]
    return set(np.argsort(-np.array(scores), kind="stable")[:count].tolist())
