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

from gaudi_tune.define.ranges import middle
from gaudi_tune.private.optuna import set_study_attribute, study_attributes
from gaudi_tune.sweep.record.front import on_front
from gaudi_tune.sweep.search.gaussian_process.best import best_row
from gaudi_tune.sweep.search.gaussian_process.improvement import for_its_time, of_best, of_front
from gaudi_tune.sweep.search.gaussian_process.process import Array, Kernel, Process
from gaudi_tune.sweep.search.gaussian_process.space import Space
from gaudi_tune.sweep.search.surrogate import ATTR_SECONDS

BEST = 2
"""How many of the best trials the search for a proposal begins with; with one objective only those that are equal."""
STARTUP = 10
"""With fewer trials every proposal is random."""
FURTHEST = 0.75
"""Share of the proposals that use the trials that trained furthest.

See docs/decisions/07-trials-that-trained-furthest.md.
"""
NEARLY = 0.8
"""Trials that trained this share of the steps of another trained as far: seconds are never the same."""
KERNELS, KERNELS_OF_FURTHEST = "gp:kernels", "gp:kernels_of_furthest"
"""Attributes of a study: the kernels as they were fitted last, for what, and after how many trials."""
GROWN = 1.1
"""They are fitted again once there are so many times as many trials, beginning with these."""
NOT_REPORTED = 30
"""From how many of the trials that have not reported yet it keeps away: the last."""
COST_COUNTS = 0.5
"""A candidate that takes four times as long must promise twice as much.

See docs/decisions/08-cheap-trials-preferred.md.
"""
RIDGE = 0.5
DECISION_S = 0.1
"""Seconds that a report costs beside the training before it, about."""
SAME_COST = 0.1
"""Where the seconds from report to report vary by less (standard deviation of their logarithm), all candidates cost the
same, and a proposal does not depend on a clock."""


class GaussianProcessSampler(RandomSampler):
    """Proposes what promises most, sometimes for the time that it takes.

    What leads after an epoch may not lead at the end. So with one objective, most proposals go by the trials that
    trained furthest, as BOHB's do (Falkner et al., 2018): by the first :data:`STARTUP`, and all that got about as far
    as the last of these, each with the best value that it had there. The other trials are taken to have no value yet,
    but for those that count as bad since they failed. The rest of the proposals go by all trials alike, and prefer
    what takes less time. What has been proposed already is not proposed again: a random configuration takes its place.

    A trial that lacks a hyperparameter, since its space branched, is taken to have it in the middle of its range.
    Losses have outliers, beside which all others look alike. So no trial is told to be further below the median than
    the best is above it. Trials with violated constraints are told to be. Several objectives are told so one by one,
    and what is looked for is what adds most to the hypervolume of the front.
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
        running = [past for past in trials if past.state == TrialState.RUNNING and past.params]
        steps = {past.number: max(past.intermediate_values, default=0) for past in known}
        end = sorted(steps.values())[-STARTUP]
        sooner = {number for number, last in steps.items() if 0 < last < NEARLY * end}
        if len(study.directions) > 1 or not sooner or self._generator.random() >= FURTHEST:
            return self._proposal(study, search_space, known, running)
        furthest = [past for past in known if past.number not in sooner]
        running = [*(past for past in known if past.number in sooner), *running]
        return self._proposal(study, search_space, _until(end, furthest, study.direction), running, end)

    def _proposal(
        self,
        study: Study,
        ranges: Mapping[str, BaseDistribution],
        known: Sequence[FrozenTrial],
        running: Sequence[FrozenTrial],
        end: int | None = None,
    ) -> dict[str, Any]:
        usual = {name: middle(range_) for name, range_ in ranges.items()}
        whole = [usual | trial.params for trial in [*known, *running[-NOT_REPORTED:]]]
        space, scores = Space(ranges), _scores(known, study.directions)
        rows, beside = np.split(space.rows(whole), [len(known)])
        kernels_of = KERNELS if end is None else KERNELS_OF_FURTHEST
        kept = study_attributes(study).get(kernels_of, {"of": None})
        of = [list(ranges), scores.shape[1]]
        same = kept["of"] == of and (end is None or NEARLY * end <= kept["end"] <= end / NEARLY)
        begun = 1 + known[-1].number  # it may be shown only some of them
        fit = not same or begun >= GROWN * kept["trials"]
        kernels: Sequence[Kernel | None] = kept["kernels"] if same else [None] * scores.shape[1]
        with _thread_pools().limit(limits=1):  # threads wait for each other in busy loops: four times the CPU
            processes = [
                Process(rows, space.of, column, kernel, fit=fit)
                for column, kernel in zip(scores.T, kernels, strict=True)
            ]
            of_all = of_best(processes[0], beside, self._generator) if len(processes) == 1 else None
            costs = _costs(known, rows) if end is None else None
            promise = for_its_time(of_all or of_front(processes, beside, self._generator), costs)
            best = self._generator.permutation(on_front(scores.tolist()))[:BEST]
            lengths = np.min([process.lengths for process in processes], axis=0)
            row = best_row(promise, space, rows[best], lengths, self._generator)
        if fit:
            kernels = [process.kernel for process in processes]
            set_study_attribute(study, kernels_of, {"of": of, "end": end, "trials": begun, "kernels": kernels})
        found = space.configuration(row)
        # Nothing is learned from the same once more. Where a corner of the space is best, most proposals would be it.
        same = any(all(found[name] == value for name, value in trial.params.items()) for trial in [*known, *running])
        return {} if same else found


@cache
def _thread_pools() -> ThreadpoolController:
    """Return what limits threads; finding the libraries takes 2 ms."""
    return ThreadpoolController()


def _until(end: int, trials: Sequence[FrozenTrial], direction: StudyDirection) -> list[FrozenTrial]:
    """Return trials with the best value that each had until then; those that failed have the worst of these."""
    best, worst = (max, min) if direction == StudyDirection.MAXIMIZE else (min, max)
    found = [copy.copy(trial) for trial in trials]
    for trial in found:
        until = [value for step, value in trial.intermediate_values.items() if step <= end]
        trial.values = [best(until, default=trial.values[0])]
    least = worst(trial.values[0] for trial in found if trial.intermediate_values)
    for trial in found:
        trial.values = trial.values if trial.intermediate_values else [least]
    return found


def _scores(trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection]) -> Array:
    """Return what complete trials are told to be worth, more being better; (trials, objectives)."""
    signs = np.array([-1 if direction == StudyDirection.MINIMIZE else 1 for direction in directions])
    violated = np.array([any(v > 0 for v in trial.constraints.values()) for trial in trials], bool)
    scores = signs * np.array([trial.values for trial in trials])
    scores = scores / np.maximum(np.abs(scores).max(axis=0), 1e-300)  # the square of 1e200 is no number
    kept = scores[~violated]
    # As far below the median as the best is above it.
    worst = 2 * np.median(kept, axis=0) - kept.max(axis=0) if len(kept) else np.zeros(len(signs))
    told = np.where(violated[:, None], worst, np.maximum(scores, worst))
    return np.asarray((told - told.mean(axis=0)) / np.maximum(told.std(axis=0), 1e-10))


def _costs(trials: Sequence[FrozenTrial], rows: Array) -> Array | None:
    """Return what each column of a candidate costs; None where all candidates cost the same, or too little is known.

    By ridge regression of the logarithms of seconds on the columns.
    """
    timed = [place for place, trial in enumerate(trials) if ATTR_SECONDS in trial.user_attrs]
    seconds = np.log([DECISION_S + trials[place].user_attrs[ATTR_SECONDS] for place in timed])
    if len(timed) < STARTUP or seconds.std() < SAME_COST:
        return None
    centred = rows[timed] - rows[timed].mean(axis=0)
    squares = centred.T @ centred + RIDGE * np.eye(rows.shape[1])
    return np.asarray(COST_COUNTS * np.linalg.solve(squares, centred.T @ (seconds - seconds.mean())))
