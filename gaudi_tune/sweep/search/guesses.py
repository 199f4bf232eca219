"""Proposals near what is known to be good: priors, and the best trials of earlier sweeps."""

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

GUESSED = "guessed"
"""User attribute of a trial that is a guess."""
SPREAD = 0.1
"""Standard deviation of a guess, as a share of its range; of a logarithmic one, of its logarithm."""
KEEPS = 0.8
"""How likely a guess keeps a choice; else it is any."""
AT_FIRST = 10
"""Among so many proposals each second is a guess; of later ones fewer and fewer."""

ENOUGH = 3
"""How many guesses are made before any is compared with other trials."""


def worth_it(trials: Sequence[FrozenTrial], objective: Objective, known: int) -> bool:
    """Whether to keep guessing: of the other trials, fewer than a third are better than the median guess.

    What is known may be wrong, so only three guesses, or all that is known, are made before they are compared. A guess
    that has not reported counts as bad. The best guess would not do: the best of many is good by luck.
    """
    scores: dict[int, float] = {}
    for trial in trials:
        if trial.intermediate_values:
            scores[trial.number] = objective.score(objective.best(trial.intermediate_values.values()))
        elif trial.state == TrialState.FAIL:
            scores[trial.number] = -math.inf
    guessed = [scores.pop(trial.number, -math.inf) for trial in trials if GUESSED in trial.user_attrs]
    if len(guessed) < max(ENOUGH, known):
        return True
    middle = median(guessed)
    return sum(score > middle for score in scores.values()) < len(scores) / 3


def guess(
    number: int, seed: int, known: Sequence[Mapping[str, Any]], ranges: Mapping[str, BaseDistribution]
) -> dict[str, Any]:
    """Return what a proposal is to have; nothing where it is the sampler's alone.

    The first proposals are what is known, as it is. Then guesses lie near it, and come the less often the more
    proposals there were: the sampler learns from those that were good, and what was wrong costs little.

    Args:
        number: Of the proposal, from 0.
        seed: Of the proposal.
        known: Values that are thought to be good; each may leave hyperparameters out, which the sampler then proposes.
        ranges: Of the hyperparameters.
    """
    if number < len(known):
        return {name: value for name, value in known[number].items() if name in ranges}
    generator = np.random.default_rng(seed)
    if generator.random() >= 0.5 * AT_FIRST / max(number, AT_FIRST):
        return {}
    centre = known[int(generator.integers(len(known)))]
    return {name: _near(value, ranges[name], generator) for name, value in centre.items() if name in ranges}


def _near(value: Any, range_: BaseDistribution, generator: np.random.Generator) -> Any:
    if isinstance(range_, CategoricalDistribution):
        return value if generator.random() < KEEPS else range_.choices[int(generator.integers(len(range_.choices)))]
    assert isinstance(range_, FloatDistribution | IntDistribution), "Optuna has three kinds of ranges"
    of, back = (math.log, math.exp) if range_.log else (float, float)
    low, high = of(range_.low), of(range_.high)
    while not low <= (drawn := generator.normal(of(value), SPREAD * (high - low))) <= high:
        pass
    return nearest(range_, back(drawn))
