"""Optuna's Gaussian process, in spaces that branch and beside many trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import GPSampler, RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import threadpool_limits

from experiments.sweep.decide.search.surrogate import ATTR_SECONDS
from experiments.sweep.define.front import in_order
from experiments.sweep.define.ranges import middle, on_step
from trainables.runtime.internals.optuna import GPSamplerByCost, hasten_gp, study_of

if TYPE_CHECKING:
    import torch

Array: TypeAlias = npt.NDArray[np.float64]

STARTUP = 10
"""With fewer trials every proposal is random."""
MOST = 150
"""How many trials it is told of: half the best there are, half any of the others. A proposal then takes 0.1 s of CPU at
most."""
NOT_REPORTED = 30
"""How many of the trials that have not reported yet it is told of: the last. It keeps away from them."""
COST_COUNTS = 0.5
"""A candidate that takes four times as long must promise twice as much (chosen in experiments/LOG.md, 2026-11-24)."""
DECISION_S = 0.1
"""Seconds that a report costs beside the training before it, about."""
SAME_COST = 0.1
"""Where the seconds from report to report vary by less (standard deviation of their logarithm), all candidates cost the
same, and a proposal does not depend on a clock."""


class GaussianProcessSampler(RandomSampler):
    """Asks Optuna's GPSampler, telling it of the trials so that it can use them.

    GPSampler models only what all trials have. Here, a trial that lacks a hyperparameter, since its space branched, is
    taken to have it in the middle of its range. Losses have outliers, beside which all others look alike. So no trial
    is told to be further below the median than the best is above it. Trials with violated constraints are told to be.
    Several objectives are told so one by one, and GPSampler looks for what adds most to the hypervolume of the front.
    Where trials differ in how long an epoch takes, it looks for what promises most for that time.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)  # what it does not propose itself is random
        self._generator = np.random.default_rng(seed)

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
        trials = study.get_trials(deepcopy=False)
        known = [past for past in trials if past.state == TrialState.COMPLETE]
        if len(known) < STARTUP or not search_space:
            return {}
        running = [past for past in trials if past.state == TrialState.RUNNING and past.params][-NOT_REPORTED:]
        signs = [-1 if direction == StudyDirection.MINIMIZE else 1 for direction in study.directions]
        scores = _scores(known, signs)
        chosen = np.argsort(-scores[:, 0], kind="stable") if len(signs) == 1 else np.array(in_order(scores.tolist()))
        if len(chosen) > MOST:
            rest = self._generator.choice(chosen[MOST // 2 :], MOST // 2, replace=False)
            chosen = np.append(chosen[: MOST // 2], rest)
        told = [*((known[index], scores[index].tolist()) for index in chosen), *((past, None) for past in running)]
        hasten_gp()
        seen = [_told(number, trial, score, search_space) for number, (trial, score) in enumerate(told)]
        sampler = _gp_sampler(int(self._generator.integers(2**31)), seen[: len(chosen)], search_space)
        with threadpool_limits(1):  # else threads wait for each other in busy loops, and take four times the CPU
            found = study_of(seen, None, [StudyDirection.MAXIMIZE] * len(signs), sampler).ask(dict(search_space)).params
        return {name: on_step(search_space[name], value) for name, value in found.items()}


def _scores(trials: Sequence[FrozenTrial], signs: Sequence[int]) -> Array:
    """Return what complete trials are told to be worth, more being better; (trials, objectives)."""
    # Few studies have constraints, and asking each of ten thousand trials takes long.
    violated = np.array([bool(t.system_attrs) and any(v > 0 for v in t.constraints.values()) for t in trials], bool)
    scores = np.array(signs) * np.array([trial.values for trial in trials])
    kept = scores[~violated]
    # As far below the median as the best is above it.
    worst = 2 * np.median(kept, axis=0) - kept.max(axis=0) if len(kept) else np.zeros(len(signs))
    return np.where(violated[:, None], worst, np.maximum(scores, worst))


def _told(
    number: int, trial: FrozenTrial, values: list[float] | None, space: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    """Return a trial that has all hyperparameters of the space; without values it runs."""
    return FrozenTrial(
        number=number,
        trial_id=number,
        state=TrialState.RUNNING if values is None else TrialState.COMPLETE,
        value=None,
        values=values,
        datetime_start=trial.datetime_start,
        datetime_complete=None if values is None else trial.datetime_start,
        params={name: trial.params.get(name, middle(range_)) for name, range_ in space.items()},
        distributions=dict(space),
        user_attrs=trial.user_attrs,
        system_attrs={},
        intermediate_values={},
    )


def _gp_sampler(seed: int, trials: Sequence[FrozenTrial], space: Mapping[str, BaseDistribution]) -> GPSampler:
    """Return the GPSampler for these complete trials: one that knows what candidates cost, where that differs."""
    timed = [trial for trial in trials if ATTR_SECONDS in trial.user_attrs]
    seconds = np.log([DECISION_S + trial.user_attrs[ATTR_SECONDS] for trial in timed])
    if len(timed) < STARTUP or seconds.std() < SAME_COST:
        return GPSampler(seed=seed, n_startup_trials=STARTUP)
    choices = [len(r.choices) if isinstance(r, CategoricalDistribution) else 0 for _, r in sorted(space.items())]
    cost_of = partial(_cost_of, seconds=seconds, choices=choices)
    return GPSamplerByCost(timed, cost_of, seed=seed, n_startup_trials=STARTUP)


def _cost_of(inputs: Array, seconds: Array, choices: Sequence[int]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what gives the cost of candidates, by ridge regression of the logarithms of seconds.

    Args:
        inputs: Scaled hyperparameters, (trials, hyperparameters); of a choice, its place.
        seconds: Their logarithms, (trials,).
        choices: How many a hyperparameter has; 0 for a number.
    """
    import torch

    def features(x: torch.Tensor) -> torch.Tensor:
        columns = ((x[..., [i]] == torch.arange(n)).double() if n else x[..., [i]] for i, n in enumerate(choices))
        return torch.cat(list(columns), dim=-1)

    known = features(torch.from_numpy(inputs))
    centred, target = known - known.mean(dim=0), torch.from_numpy(seconds - seconds.mean())
    weights = torch.linalg.solve(centred.T @ centred + 0.5 * torch.eye(known.shape[1]).double(), centred.T @ target)
    return lambda x: COST_COUNTS * (features(x) @ weights)
