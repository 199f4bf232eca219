"""Guesses: proposals near what is known to be good, which is priors and the best trials of earlier sweeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from gaudi_tune.define.objective import Objective
from gaudi_tune.define.ranges import nearest
from gaudi_tune.sweep.search.sampler_view import best_report

GUESSED = "guessed"
"""User attribute of a trial that is a guess."""
SPREAD = 0.1
"""Standard deviation of a guess, as a share of its range; of a logarithmic range, of the logarithm's."""
KEEP_PROBABILITY = 0.8
"""The probability that a guess keeps the value of a choice; else it is drawn from all of them."""
N_EARLY = 10
"""Half of this many first proposals are guesses; of later ones, fewer and fewer."""
MIN_GUESSES = 2
"""How many guesses are made before they are compared with other trials."""


def guesses_pay_off(trials: Sequence[FrozenTrial], objective: Objective) -> bool:
    """Whether to keep guessing: fewer than a third of the other trials are better than the median guess.

    The sources may be wrong, so only two guesses are made before they are compared. A guess that has not reported
    counts as bad. The best guess would be a poor measure: the best of many is good by luck.

    Args:
        trials: All trials, of which some are guesses.
        objective: The objective that trials are compared by.
    """
    scores: dict[int, float] = {}
    for trial in trials:
        if best := best_report(trial, objective):
            scores[trial.number] = objective.score(best[1])
        elif trial.state == TrialState.FAIL:
            scores[trial.number] = -math.inf
    guess_scores = [scores.pop(trial.number, -math.inf) for trial in trials if GUESSED in trial.user_attrs]
    if len(guess_scores) < MIN_GUESSES:
        return True
    median_guess = median(guess_scores)
    return sum(score > median_guess for score in scores.values()) < len(scores) / 3


def guess(
    n_guessed: int, number: int, seed: int, sources: Sequence[Mapping[str, Any]], ranges: Mapping[str, BaseDistribution]
) -> dict[str, Any]:
    """Return values for a proposal; empty if the sampler is to make it alone.

    The first guesses are the sources as they are. Then guesses lie near them, and become rarer with the number of
    proposals: the sampler learns from those that were good, and a wrong source costs little.

    Args:
        n_guessed: How many proposals were guesses.
        number: The number of the proposal, from 0.
        seed: The seed of the proposal.
        sources: Configurations thought to be good. One may lack hyperparameters, which the sampler then proposes.
        ranges: The hyperparameters.
    """
    if n_guessed < len(sources):
        return {name: value for name, value in sources[n_guessed].items() if name in ranges}
    generator = np.random.default_rng(seed)
    if generator.random() >= 0.5 * N_EARLY / max(number, N_EARLY):
        return {}
    centre = sources[int(generator.integers(len(sources)))]
    return {name: _neighbour(value, ranges[name], generator) for name, value in centre.items() if name in ranges}


def _neighbour(value: Any, range_: BaseDistribution, generator: np.random.Generator) -> Any:
    """Return a random value near this one, inside the range."""
    if isinstance(range_, CategoricalDistribution):
        if generator.random() < KEEP_PROBABILITY:
            return value
        return range_.choices[int(generator.integers(len(range_.choices)))]
    assert isinstance(range_, FloatDistribution | IntDistribution), "Optuna has three kinds of ranges"
    scale, unscale = (math.log, math.exp) if range_.log else (float, float)
    low, high = scale(range_.low), scale(range_.high)
    while True:
        draw = generator.normal(scale(value), SPREAD * (high - low))
        if low <= draw <= high:
            return nearest(range_, unscale(draw))
