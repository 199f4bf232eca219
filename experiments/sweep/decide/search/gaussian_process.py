"""A Gaussian process that proposes where it expects the best; a third of the proposals are random."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

Array: TypeAlias = npt.NDArray[np.float64]

RANDOM_SHARE = 1 / 3
"""Of the proposals. Without them a task on which the first epochs mislead is lost (docs/search.md)."""
STARTUP = 10
"""With fewer trials every proposal is random."""
MOST = 150
"""How many trials it learns from: the better half is the best there are, the other half any of the rest."""
GUESSES = 40
"""Length scales and noises that are tried, the later half near the best so far, on every second of many trials."""
CANDIDATES = 200
"""Points of which one is proposed: half anywhere, half near the best trials."""
NEAR = 0.15
"""Standard deviation of a hyperparameter near that of a good trial, of its range."""


class GaussianProcessSampler(BaseSampler):
    """Models the rank of a trial's value by its hyperparameters, one length scale for each.

    Ranks, since losses have outliers and an accuracy crowds near 1. Of the candidates it takes the one with the best
    bound, at a confidence drawn for each proposal, so that workers that ask at the same time get different ones.

    In a space that branches it models the hyperparameters of all branches together; where a trial lacks one, that one
    is taken to be in the middle of its range. Trials with violated constraints rank last.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._random = RandomSampler(seed=seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all hyperparameters that a trial had; what the space does not ask for is dropped."""
        found: dict[str, BaseDistribution] = {}
        for past in reversed(study.get_trials(deepcopy=False)):  # the range that was asked for last
            if not past.distributions.keys() <= found.keys():
                found = {**past.distributions, **found}
        return {name: found[name] for name in sorted(found) if not found[name].single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a proposal; nothing where it is to be random."""
        known = list(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
        if len(known) < STARTUP or not search_space or self._generator.random() < RANDOM_SHARE:
            return {}
        known = _best_first(known, study.direction)
        if len(known) > MOST:
            rest = self._generator.permutation(np.arange(MOST // 2, len(known)))[: MOST // 2]
            known = [*known[: MOST // 2], *(known[index] for index in sorted(rest))]
        points = np.hstack([_columns(name, range_, known) for name, range_ in search_space.items()])
        return _params(search_space, self._best_candidate(points))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return a random value."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _best_candidate(self, points: Array) -> Array:
        """Return the most promising point, given those of trials, the best first; (columns,)."""
        count, columns = points.shape
        normal = NormalDist()
        score = np.array([normal.inv_cdf((rank + 0.5) / count) for rank in range(count)])
        scales, noise = self._fit(points, score)
        near = points[self._generator.integers(max(3, count // 10), size=CANDIDATES // 2)]
        moved = np.clip(near + NEAR * self._generator.standard_normal(near.shape), 0, 1)
        near = np.where(self._generator.random(near.shape) < 0.5, moved, near)
        candidates = np.vstack([self._generator.random((CANDIDATES - len(near), columns)), near])
        lower = np.linalg.cholesky(_kernel(points, points, scales) + noise * np.eye(count))
        towards = np.linalg.solve(lower, _kernel(points, candidates, scales))
        mean, variance = towards.T @ np.linalg.solve(lower, score), 1 - (towards**2).sum(axis=0)
        confidence = abs(self._generator.standard_normal())
        return candidates[int((mean - confidence * np.sqrt(np.maximum(variance, 0))).argmin())]

    def _fit(self, points: Array, score: Array) -> tuple[Array, float]:
        """Return the likeliest length scales, (columns,), and noise of some that are drawn."""
        if len(points) > MOST // 2:
            points, score = points[::2], score[::2]
        best, scales, noise = -math.inf, np.full(points.shape[1], 0.7), 0.3
        for guess in range(GUESSES):
            if guess < GUESSES // 2:
                tried = np.exp(self._generator.uniform(math.log(0.2), math.log(3), points.shape[1]))
                tried_noise = float(self._generator.uniform(0.03, 0.7))
            else:
                tried = scales * np.exp(0.5 * self._generator.standard_normal(points.shape[1]))
                tried_noise = min(max(noise * math.exp(0.5 * self._generator.standard_normal()), 0.03), 1.0)
            likelihood = _likelihood(points, score, tried, tried_noise)
            if likelihood > best:
                best, scales, noise = likelihood, tried, tried_noise
        return scales, noise


def _best_first(trials: Sequence[FrozenTrial], direction: StudyDirection) -> list[FrozenTrial]:
    """Sort complete trials: those with the least violated constraints first, and among these the best."""
    values = np.array([trial.values[0] for trial in trials])
    # Few studies have constraints, and asking each of ten thousand trials takes as long as the rest.
    violated = [
        sum(max(violation, 0.0) for violation in trial.constraints.values()) if trial.system_attrs else 0.0
        for trial in trials
    ]
    order = np.lexsort((-values if direction == StudyDirection.MAXIMIZE else values, np.array(violated)))
    return [trials[index] for index in order.tolist()]


def _kernel(one: Array, other: Array, scales: Array) -> Array:
    a, b = one / scales, other / scales
    squares: Array = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.exp(-0.5 * np.maximum(squares, 0))


def _likelihood(points: Array, score: Array, scales: Array, noise: float) -> float:
    """Return the logarithm of the likelihood at the likeliest variance, with a prior for scales near 0.7."""
    lower = np.linalg.cholesky(_kernel(points, points, scales) + noise * np.eye(len(points)))
    white = np.linalg.solve(lower, score)
    prior = 0.15 * float((np.log(scales / 0.7) ** 2).sum())
    return float(-0.5 * len(score) * math.log(white @ white / len(score)) - np.log(np.diag(lower)).sum() - prior)


def _columns(name: str, range_: BaseDistribution, trials: Sequence[FrozenTrial]) -> Array:
    """Return a hyperparameter of trials from 0 to 1, a column for each choice; (trials, columns)."""
    raw = np.array([range_.to_internal_repr(t.params[name]) if name in t.params else math.nan for t in trials])
    if isinstance(range_, CategoricalDistribution):
        column = (raw[:, None] == np.arange(len(range_.choices))).astype(float)
    else:
        assert isinstance(range_, (FloatDistribution, IntDistribution))
        low, high = _bounds(range_)
        column = (((np.log(raw) if range_.log else raw) - low) / (high - low))[:, None]
    return np.where(np.isfinite(raw)[:, None], column, 0.5)


def _bounds(range_: FloatDistribution | IntDistribution) -> tuple[float, float]:
    """Return the bounds of what is modelled: logarithms, if they are searched, and half a step on either side."""
    low, high = range_.low - (range_.step or 0) / 2, range_.high + (range_.step or 0) / 2
    return (math.log(low), math.log(high)) if range_.log else (low, high)


def _params(space: Mapping[str, BaseDistribution], point: Array) -> dict[str, Any]:
    """Return the configuration at a point; of the choices that with the largest number."""
    found: dict[str, Any] = {}
    for name, range_ in space.items():
        columns, point = np.split(point, [len(range_.choices) if isinstance(range_, CategoricalDistribution) else 1])
        if isinstance(range_, (FloatDistribution, IntDistribution)):
            low, high = _bounds(range_)
            value = low + float(columns[0]) * (high - low)
            value = math.exp(value) if range_.log else value
            if range_.step:
                value = range_.low + range_.step * round((value - range_.low) / range_.step)
            found[name] = range_.to_external_repr(min(max(value, range_.low), range_.high))
        else:
            found[name] = range_.to_external_repr(int(columns.argmax()))
    return found
