"""The importance of hyperparameters by PED-ANOVA (https://arxiv.org/abs/2304.10255), as Optuna computes it.

Optuna's own function has the same result. Importing it takes 1.2 s and 100 MB, for scikit-learn, which PED-ANOVA does
not need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gaudi_tune.define.objective import Objective
from gaudi_tune.show.pictures.sweep_view import ShownTrial

BEST_SHARE = 0.1
"""The share of trials that count as the best."""
MAX_CELLS = 50
"""Into how many cells the range of a number is divided at most."""
MIN_WIDTH = 0.5 / 1.64
"""The smallest width of the kernel around an observation, in cells."""
MIN_TRIALS = 2
"""How many trials must have had a range for the range to count."""
TINY = 1e-12
"""Added to each density, which is divided by."""
_erf = np.vectorize(math.erf, otypes=[float])


def importances(trials: Sequence[ShownTrial], objective: Objective) -> dict[str, float]:
    """Return the share of each hyperparameter in whether a trial is among the best, the largest first.

    It is the difference between where the best trials are in the hyperparameter's range, and where all trials are.
    A hyperparameter may have several ranges, and some trials may not have it. Every trial has a best value.
    """
    scores = [objective.score(trial.point[0]) for trial in trials]
    worst_of_the_best = sorted(scores, reverse=True)[math.ceil(BEST_SHARE * len(trials)) - 1]
    best_trials = {trial.number for trial, score in zip(trials, scores, strict=True) if score >= worst_of_the_best}
    names = sorted({name for trial in trials for name in trial.ranges})
    divergences = {name: _divergence(name, trials, best_trials) for name in names}
    total = sum(divergences.values())
    shares = {name: divergence / total if total else 1 / len(names) for name, divergence in divergences.items()}
    return dict(sorted(shares.items(), key=lambda share: -share[1]))


def _divergence(name: str, trials: Sequence[ShownTrial], best_trials: Set[int]) -> float:
    """Return how much the values of a hyperparameter in the best trials differ from those in all trials."""
    divergence = 0.0
    for values_range in {trial.ranges[name] for trial in trials if name in trial.ranges}:
        members = [trial for trial in trials if trial.ranges.get(name) == values_range]
        best_members = [trial for trial in members if trial.number in best_trials]
        if len(members) < MIN_TRIALS or values_range.single() or not best_members:
            continue
        density, best_density = (
            _density([_cell(trial.params[name], values_range) for trial in group], values_range)
            for group in (members, best_members)
        )
        share, share_of_best = len(members) / len(trials), len(best_members) / len(best_trials)
        divergence += share_of_best**2 / share * float(density @ (best_density / density - 1) ** 2)
    return divergence


def _density(cells: Sequence[int], values_range: BaseDistribution) -> npt.NDArray[Any]:
    """Return how often each cell of a range has a trial, smoothed by a kernel around each cell that has some.

    The kernels' width follows from the cells by Scott's rule. One more kernel covers the whole range.
    """
    counts = np.bincount(cells, minlength=_number_of_cells(values_range))
    size, observed = counts.size, np.flatnonzero(counts)
    weights = np.append(counts[observed], 1) / (counts.sum() + 1)
    if isinstance(values_range, CategoricalDistribution):
        kernels = np.full((observed.size + 1, size), 1 / (observed.size + 1))
        kernels[np.arange(observed.size), observed] += 1
        kernels /= kernels.sum(axis=1, keepdims=True)
        return weights @ kernels + TINY
    n_trials, running_count = counts.sum(), np.cumsum(counts[observed])
    mean = observed @ counts[observed] / n_trials
    deviation = math.sqrt((observed - mean) ** 2 @ counts[observed] / max(1, n_trials - 1))
    first_quarter = np.searchsorted(running_count, n_trials // 4, side="left")
    last_quarter = min(observed.size - 1, np.searchsorted(running_count, n_trials * 3 // 4, side="right"))
    middle_half = observed[last_quarter] - observed[first_quarter]
    width = max(1.059 * min(middle_half / 1.34, deviation) * n_trials**-0.2, MIN_WIDTH)
    centres = np.append(observed, (size - 1) / 2)
    widths = np.append(np.full(observed.size, width), size)
    borders = (np.arange(size + 1)[:, None] - 0.5 - centres) / widths
    masses = _erf(borders / math.sqrt(2))  # twice the probability, less 1
    return ((masses[1:] - masses[:-1]) / (masses[-1] - masses[0])) @ weights + TINY


def _number_of_cells(values_range: BaseDistribution) -> int:
    if isinstance(values_range, CategoricalDistribution):
        return len(values_range.choices)
    assert isinstance(values_range, FloatDistribution | IntDistribution)
    if isinstance(values_range, IntDistribution) and values_range.log:
        return min(math.ceil(math.log2(values_range.high - values_range.low + 1)) + 1, MAX_CELLS)
    if values_range.step is None:
        return MAX_CELLS
    return min(round((values_range.high - values_range.low) / values_range.step) + 1, MAX_CELLS)


def _cell(value: Any, values_range: BaseDistribution) -> int:
    if isinstance(values_range, CategoricalDistribution):
        return int(values_range.to_internal_repr(value))
    assert isinstance(values_range, FloatDistribution | IntDistribution)
    low, high = values_range.low, values_range.high
    if values_range.log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    last_cell = _number_of_cells(values_range) - 1
    return min(max(math.ceil((value - low) / (high - low) * last_cell - 0.5), 0), last_cell)
