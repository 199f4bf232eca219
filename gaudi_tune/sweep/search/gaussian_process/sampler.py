"""A sampler of Optuna's kind that proposes with a Gaussian process, in spaces that branch and beside many trials."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import ThreadpoolController
from typing_extensions import override

from gaudi_tune.define.ranges import middle
from gaudi_tune.private.optuna import is_feasible, set_study_attribute, study_attributes
from gaudi_tune.sweep.record.ranking import on_front
from gaudi_tune.sweep.search.gaussian_process.acquisition import (
    log_expected_improvement,
    log_hypervolume_improvement,
    minus_costs,
)
from gaudi_tune.sweep.search.gaussian_process.maximize import maximize
from gaudi_tune.sweep.search.gaussian_process.process import Array, GaussianProcess, KernelParameters
from gaudi_tune.sweep.search.gaussian_process.space import Space
from gaudi_tune.sweep.search.sampler_view import ATTR_SECONDS

N_BEST_STARTS = 2
"""How many of the best trials are starts of the search for a proposal; with one objective only if they are equal."""
N_STARTUP = 10
"""Every proposal is random until there are so many trials with a value."""
LONGEST_SHARE = 0.75
"""The share of the proposals that use the trials that trained furthest.

See docs/decisions/07-trials-that-trained-furthest.md.
"""
NEARLY = 0.8
"""Trials that trained this share of the steps of another trained as far: seconds are never the same."""
KERNELS, KERNELS_OF_LONGEST = "gp:kernels", "gp:kernels_of_furthest"
"""Attributes of a study: the kernels as they were fitted last, for which hyperparameters, and after how many trials."""
REFIT_GROWTH = 1.1
"""Kernels are fitted again, beginning with the last ones, once there are this many times as many trials."""
MAX_UNREPORTED = 30
"""Proposals keep away from at most so many trials that have not reported yet: the last ones."""
COST_WEIGHT = 0.5
"""The weight of a candidate's log time: at one half, one that takes four times as long must promise twice as much.

See docs/decisions/08-cheap-trials-preferred.md.
"""
RIDGE = 0.5
"""The ridge penalty of the regression that predicts how long a candidate takes."""
DECISION_S = 0.1
"""A report costs about so many seconds besides the training before it."""
MIN_COST_SPREAD = 0.1
"""If the seconds from report to report vary by less (standard deviation of their logarithm), all candidates cost the
same, and no proposal depends on a clock."""


class GaussianProcessSampler(RandomSampler):
    """Proposes the configuration with the largest expected improvement, for some proposals less what it costs in time.

    The trials that lead after an epoch may not lead at the end. So with one objective, most proposals use the trials
    that trained furthest, as BOHB's do (Falkner et al., 2018): the :data:`N_STARTUP` that trained furthest, and all
    that got about as far as the last of these, each with the best value that it had there. The other trials are treated
    like running ones, except that failed trials count as bad. The rest of the proposals use all trials alike, and
    prefer what takes less time. A configuration is not proposed twice: a random one takes its place.

    A trial that lacks a hyperparameter, since its space branched, is treated as having it in the middle of its range.
    Losses have outliers, beside which all other values look alike. So a score further below the median than the best is
    above it is raised to that distance. Trials with violated constraints get the lowest score that is left. With
    several objectives this is done for each, and the proposal is what adds most to the hypervolume of the front.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)  # its base class makes the random proposals
        self._generator = np.random.default_rng(seed)

    @override
    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all hyperparameters with several values that any trial had.

        Optuna drops those that the space does not ask for, and sets those with a single value itself.
        """
        ranges: dict[str, BaseDistribution] = {}
        for earlier_trial in reversed(study.get_trials(deepcopy=False)):  # the latest range of a name counts
            if not earlier_trial.distributions.keys() <= ranges.keys():
                wide_ranges = {
                    name: range_ for name, range_ in earlier_trial.distributions.items() if not range_.single()
                }
                ranges = {**wide_ranges, **ranges}
        return {name: ranges[name] for name in sorted(ranges)}

    @override
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a proposal; empty if it is to be random."""
        trials = study.get_trials(deepcopy=False)
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        if len(complete) < N_STARTUP or not search_space:
            return {}
        running = [trial for trial in trials if trial.state == TrialState.RUNNING and trial.params]
        last_steps = {trial.number: max(trial.intermediate_values, default=0) for trial in complete}
        end = sorted(last_steps.values())[-N_STARTUP]
        shorter = {number for number, last_step in last_steps.items() if 0 < last_step < NEARLY * end}
        if len(study.directions) > 1 or not shorter or self._generator.random() >= LONGEST_SHARE:
            return self._propose(study, search_space, complete, running)
        longest = [trial for trial in complete if trial.number not in shorter]
        unscored = [*(trial for trial in complete if trial.number in shorter), *running]
        return self._propose(study, search_space, _as_at_step(end, longest, study.direction), unscored, end)

    def _propose(
        self,
        study: Study,
        ranges: Mapping[str, BaseDistribution],
        scored: Sequence[FrozenTrial],
        unscored: Sequence[FrozenTrial],
        end: int | None = None,
    ) -> dict[str, Any]:
        """Return the configuration to try next; empty if the best one was tried before, and it is to be random.

        Args:
            study: The study, whose attributes keep the kernels from proposal to proposal.
            ranges: The hyperparameters.
            scored: Trials with values.
            unscored: Trials from which proposals keep away, although their values are not known.
            end: The step at which the values were taken; None if each trial has its best value.
        """
        defaults = {name: middle(range_) for name, range_ in ranges.items()}
        configurations = [defaults | trial.params for trial in [*scored, *unscored[-MAX_UNREPORTED:]]]
        space, scores = Space(ranges), _scores(scored, study.directions)
        rows, unscored_rows = np.split(space.rows(configurations), [len(scored)])

        key = KERNELS if end is None else KERNELS_OF_LONGEST
        n_objectives = scores.shape[1]
        shape = [list(ranges), n_objectives]
        last_fit = study_attributes(study).get(key, {"of": None})
        is_usable = last_fit["of"] == shape and (end is None or NEARLY * end <= last_fit["end"] <= end / NEARLY)
        n_begun = 1 + scored[-1].number  # not their count: the study may have only some of the trials
        fit = not is_usable or n_begun >= REFIT_GROWTH * last_fit["trials"]
        kernels: Sequence[KernelParameters | None] = last_fit["kernels"] if is_usable else [None] * n_objectives

        # Several threads would wait for each other in busy loops, at four times the CPU.
        with _thread_pools().limit(limits=1):
            processes = [
                GaussianProcess(rows, space.parameter_of_column, column, kernel, fit=fit)
                for column, kernel in zip(scores.T, kernels, strict=True)
            ]
            if n_objectives == 1:
                acquisition = log_expected_improvement(processes[0], unscored_rows, self._generator)
            else:
                acquisition = log_hypervolume_improvement(processes, unscored_rows, self._generator)
            acquisition = minus_costs(acquisition, _costs(scored, rows) if end is None else None)
            best = self._generator.permutation(on_front(scores.tolist()))[:N_BEST_STARTS]
            length_scales = np.min([process.length_scales for process in processes], axis=0)
            row = maximize(acquisition, space, rows[best], length_scales, self._generator)
        if fit:
            kernels = [process.kernel for process in processes]
            set_study_attribute(study, key, {"of": shape, "end": end, "trials": n_begun, "kernels": kernels})

        proposal = space.configuration(row)
        # The same trial again teaches nothing. If a corner of the space is best, most proposals would be that corner.
        is_repeat = any(_has_values(trial, proposal) for trial in [*scored, *unscored])
        return {} if is_repeat else proposal


@cache
def _thread_pools() -> ThreadpoolController:
    """Return what limits threads; finding the libraries takes 2 ms."""
    return ThreadpoolController()


def _has_values(trial: FrozenTrial, configuration: Mapping[str, Any]) -> bool:
    """Whether each hyperparameter of a trial has the value that it has in a configuration.

    A configuration lacks those that never had more than a single value.
    """
    return all(configuration[name] == value for name, value in trial.params.items() if name in configuration)


def _as_at_step(end: int, trials: Sequence[FrozenTrial], direction: StudyDirection) -> list[FrozenTrial]:
    """Return copies of trials with the best value that each had up to a step.

    Failed trials, which have no reports, get the worst of these values.
    """
    best, worst = (max, min) if direction == StudyDirection.MAXIMIZE else (min, max)
    copies = [copy.copy(trial) for trial in trials]
    for trial in copies:
        values = [value for step, value in trial.intermediate_values.items() if step <= end]
        trial.values = [best(values, default=trial.values[0])]
    worst_value = worst(trial.values[0] for trial in copies if trial.intermediate_values)
    for trial in copies:
        if not trial.intermediate_values:
            trial.values = [worst_value]
    return copies


def _scores(trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection]) -> Array:
    """Return the standardized scores of complete trials, more being better; (trials, objectives)."""
    signs = np.array([-1 if direction == StudyDirection.MINIMIZE else 1 for direction in directions])
    is_violated = np.array([not is_feasible(trial) for trial in trials], bool)
    scores = signs * np.array([trial.values for trial in trials])
    scores = scores / np.maximum(np.abs(scores).max(axis=0), 1e-300)  # the square of 1e200 would overflow
    valid_scores = scores[~is_violated]
    if len(valid_scores):  # as far below the median as the best is above it
        floor = 2 * np.median(valid_scores, axis=0) - valid_scores.max(axis=0)
    else:
        floor = np.zeros(len(signs))
    clipped = np.where(is_violated[:, None], floor, np.maximum(scores, floor))
    return np.asarray((clipped - clipped.mean(axis=0)) / np.maximum(clipped.std(axis=0), 1e-10))


def _costs(trials: Sequence[FrozenTrial], rows: Array) -> Array | None:
    """Return what each column of a candidate costs, by ridge regression of log seconds on the columns.

    Returns:
        The costs, (columns,); None if all candidates cost the same, or too few trials were timed.
    """
    timed = [index for index, trial in enumerate(trials) if ATTR_SECONDS in trial.user_attrs]
    log_seconds = np.log([DECISION_S + trials[index].user_attrs[ATTR_SECONDS] for index in timed])
    if len(timed) < N_STARTUP or log_seconds.std() < MIN_COST_SPREAD:
        return None
    centred = rows[timed] - rows[timed].mean(axis=0)
    penalized = centred.T @ centred + RIDGE * np.eye(rows.shape[1])
    return np.asarray(COST_WEIGHT * np.linalg.solve(penalized, centred.T @ (log_seconds - log_seconds.mean())))
