"""Whether one configuration is better than another, by the scores of a few seeds each; more is better."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev, variance
from typing import Any, NamedTuple

from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.record.trial_state import TrialState

LEVEL = 0.95
"""The confidence level of intervals."""
SURE = 0.99
"""The confidence from which on no more seeds are trained."""
OPEN = 0.5
"""The confidence below which more seeds would hardly change the verdict."""
LOOKS = 2
"""How often a confirmation that may train more seeds looks at its verdict: after its first seeds, and after all."""


class Gain(NamedTuple):
    """How much better the winner is than the baseline."""

    mean: float
    interval: tuple[float, float] | None = None
    """None as long as it is unknown: with one score, or if neither varies with the seed."""
    confidence: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether more seeds may tell."""
        return self.confidence is not None and OPEN <= self.confidence < SURE


def confirmed_scores(trials: Iterable[TrialState]) -> tuple[dict[int, list[TrialState]], dict[int, list[float]], bool]:
    """Return what the confirmation has found so far, in the first objective.

    Returns:
        Its trials that count, and their scores, by the number of the trial whose configuration they confirm; and
        whether the scores are of test data. A trial that its loop ended early counts, too; one that failed or that a
        person stopped does not.
    """
    groups: dict[int, list[TrialState]] = {}
    for trial in trials:
        succeeded = trial.has_ended and trial.status != "failed" and not trial.to_stop
        if trial.confirms and succeeded and trial.test_point and math.isfinite(trial.test_point[0]):
            groups.setdefault(trial.confirms, []).append(trial)
    tested = all(trial.tested for group in groups.values() for trial in group)
    scores = {n: [(trial.test_point if tested else trial.point)[0] for trial in group] for n, group in groups.items()}
    return groups, scores, tested


def winning_row(confirmation: Mapping[str, Any] | None, objective: Objective) -> dict[str, Any] | None:
    """Return the best row of a confirmation as the summary has it, perhaps the baseline's; None if there is none."""
    rows = [*confirmation["rivals"], confirmation["baseline"]] if confirmation else []
    return max(filter(None, rows), key=lambda row: objective.score(row["mean"]), default=None)


def gain_over(baseline: Sequence[float], rivals: Sequence[Sequence[float]], looks: int = 1) -> Gain:
    """Return how much better than the baseline the best of its rivals is, and with what confidence.

    The test is Welch's (1947), one-sided. Its probability of chance is multiplied by the number of rivals among which
    the winner is the best, and by the number of looks (Bonferroni; of a test in groups, it is the simplest of the
    spending functions of Lan and DeMets, 1983). So a sweep that trains more seeds because the first ones left it open
    is no more often wrong than one that trains as many from the start.

    >>> gain_over([0.50, 0.52, 0.51], [[0.60, 0.63, 0.61]])
    Gain(mean=0.1033..., interval=(0.0721..., 0.1345...), confidence=0.9993...)
    """
    winner = max(rivals, key=fmean)
    mean = fmean(winner) - fmean(baseline)
    sides = [scores for scores in (winner, baseline) if len(scores) > 1]
    errors = [variance(scores) / len(scores) for scores in sides]
    if len(sides) < 2 or not any(errors):
        return Gain(mean)
    error = math.sqrt(sum(errors))
    freedom = error**4 / sum(part**2 / (len(scores) - 1) for part, scores in zip(errors, sides, strict=True))
    from scipy.special import stdtr, stdtrit  # here, as lists would wait for it; scipy.stats takes a second more

    half = error * float(stdtrit(freedom, 1 - (1 - LEVEL) / 2 / looks))
    chance = float(stdtr(freedom, -mean / error))
    return Gain(mean, (mean - half, mean + half), 1 - min(1.0, looks * len(rivals) * chance))


def half_width(scores: Sequence[float]) -> float:
    """Return half the width of the interval of the mean of two or more scores, which is Student's (1908)."""
    from scipy.special import stdtrit

    return float(stdtrit(len(scores) - 1, (1 + LEVEL) / 2)) * stdev(scores) / math.sqrt(len(scores))
