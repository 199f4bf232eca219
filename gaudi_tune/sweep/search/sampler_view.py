"""The study that a sampler sees: every trial, running ones included, with its best value (or point) so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from datetime import datetime
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from gaudi_tune.base.failure import FailureKind
from gaudi_tune.define.objective import Objective, scores_of
from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.record.ranking import in_order

ATTR_CONSTRAINTS = "constraints"
"""User attribute of a trial: the soft constraints it last reported."""
ATTR_POINT = "point"
"""User attribute of a trial: all objectives in its best report, if the sweep has several."""
ATTR_FAILURE = "failure"
"""User attribute of a trial: why it failed, for people."""
ATTR_FAILURE_KIND = "failure_kind"
"""User attribute of a trial that failed: the kind of failure."""
ATTR_NUMBER = "trial"
"""User attribute of a trial: its number in the sweep, from 1, if that is not its number in the study plus one."""
ATTR_SECONDS = "seconds_each"
"""User attribute of a trial: how long it trains from one report to the next."""


class TrialLimits(NamedTuple):
    """How many trials with a value a sampler sees at most: with thousands, a proposal would take too long."""

    best: int
    """How many of the best."""
    sampled: int
    """How many of the rest, drawn at random."""


OF_THE_CONFIGURATION = (
    FailureKind.DIVERGED, FailureKind.OUT_OF_MEMORY, FailureKind.LOOP_ERROR, FailureKind.UNUSABLE_REPORT,
    FailureKind.NO_VALUE, FailureKind.CONFIG_ERROR,
)  # fmt: skip
"""Failures that come from training with a configuration. A loop may raise an error where its loss is NaN: it has
diverged, too."""


class SamplerView:
    """Makes the study that a sampler sees from the study of the sweep, and keeps it up from proposal to proposal.

    A trial that has reported is complete there, with its best value so far. Optuna alone would count running trials as
    bad, the promising ones for longest. A trial that has not reported is running. One that failed in its training
    (:data:`OF_THE_CONFIGURATION`) has the worst value of all, so that the sampler keeps away from it. Any other failed
    trial, such as one that lost its workers, has no value.
    """

    def __init__(self, study: optuna.Study, objectives: Sequence[Objective]) -> None:
        """Begin with no trial.

        Args:
            study: The study of the sweep, in memory. It replaces the object of a trial that changes.
            objectives: The objectives that the study's values are of.
        """
        self._study, self._objectives = study, objectives
        self._scores = np.empty((0, len(objectives)))
        """The scores of the best point of each trial, NaN where it has none; (trials, objectives)."""
        self._trials: list[FrozenTrial] = []
        """The trials of the study as they were at the last :meth:`update`."""
        self._shown: list[FrozenTrial] = []
        """The same trials as the sampler sees them."""
        self._hopeless: dict[int, Sequence[float]] = {}
        """Trials that get the worst values of all, with the values that each was shown with last."""
        self.out_of_memory: set[int] = set()
        """Trials that did not fit into the device's memory, at the last :meth:`update`."""

    def update(self) -> None:
        """Take what has changed in the study, in which a trial that has ended no longer changes."""
        trials, n_earlier = self._study.get_trials(deepcopy=False), len(self._trials)
        no_scores = np.full((len(trials) - n_earlier, len(self._objectives)), math.nan)
        self._scores = np.append(self._scores, no_scores, axis=0)
        self._trials += trials[n_earlier:]
        self._shown += trials[n_earlier:]
        for number, (trial, earlier_trial) in enumerate(zip(trials, self._trials, strict=True)):
            if number >= n_earlier or trial is not earlier_trial:
                self._take(number, trial)

    def study_for(
        self, sampler: BaseSampler, running: int | None = None, limits: TrialLimits | None = None
    ) -> optuna.Study:
        """Return a study in memory with trials in their order.

        Args:
            sampler: The sampler that is to propose, or is about to get the end of a trial.
            running: A trial that is about to end, and is shown as running.
            limits: How many trials to show, besides all without a value that run; None, or if there are fewer: all.
        """
        self.update()
        scores = self._scores.copy()
        worst_scores = np.fmin.reduce(scores, axis=0, initial=math.nan).tolist()
        worst_values = scores_of(self._objectives, worst_scores)  # of a score, that is the value
        for number, shown_values in self._hopeless.items():
            scores[number] = worst_scores
            if shown_values != worst_values:
                self._shown[number] = _as_shown(self._trials[number], worst_values)
                self._hopeless[number] = worst_values
        shown = list(self._shown)
        if running is not None:
            scores[running], shown[running] = math.nan, _as_shown(self._trials[running])
        if limits is not None and np.isfinite(scores[:, 0]).sum() > sum(limits):
            numbers = self._select(scores, limits)
            scores, shown = scores[numbers], [shown[number] for number in numbers]
        best = int(np.nanargmax(scores[:, 0])) if np.isfinite(scores).any() else None
        study = internals.study_of(shown, best, self._study.directions, sampler)
        copy_attributes(self._study, study)
        return study

    def _select(self, scores: npt.NDArray[np.float64], limits: TrialLimits) -> list[int]:
        """Return the numbers of the trials that a sampler sees."""
        has_value = np.isfinite(scores[:, 0])
        valued = np.flatnonzero(has_value)
        best, rest = np.split(valued[in_order(scores[valued].tolist())], [limits.best])
        sampled = np.random.default_rng(len(scores)).choice(rest, limits.sampled, replace=False)
        rest = np.flatnonzero(~has_value).tolist()
        running = [number for number in rest if not self._trials[number].state.is_finished()]
        return sorted([*best.tolist(), *sampled.tolist(), *running])

    def _take(self, number: int, trial: FrozenTrial) -> None:
        """Take a new trial, or the new state of one."""
        point = [] if trial.state == TrialState.FAIL else best_point(trial, self._objectives)
        values = point or [math.nan] * len(self._objectives)
        self._scores[number] = scores_of(self._objectives, values)
        self._trials[number], self._shown[number] = trial, _as_shown(trial, values)
        if ran_out_of_memory(trial):
            self.out_of_memory.add(number)
        if _failed_with(trial, *OF_THE_CONFIGURATION):
            self._hopeless[number] = ()


def best_report(trial: FrozenTrial, objective: Objective) -> tuple[int, float] | None:
    """Return the step and the value of the best report of a trial of a study; None if it has not reported."""
    reports = trial.intermediate_values.items()
    return max(reports, key=lambda report: objective.score(report[1]), default=None)


def best_point(trial: FrozenTrial, objectives: Sequence[Objective]) -> list[float]:
    """Return all objectives in the best report of a trial of the sweep's study; empty if it has not reported."""
    best = best_report(trial, objectives[0])
    return [] if best is None else list(trial.user_attrs.get(ATTR_POINT) or best[1:])


def ran_out_of_memory(trial: FrozenTrial) -> bool:
    """Whether a trial failed because the device's memory was full."""
    return _failed_with(trial, FailureKind.OUT_OF_MEMORY)


def _failed_with(trial: FrozenTrial, *kinds: FailureKind) -> bool:
    return trial.state == TrialState.FAIL and trial.user_attrs.get(ATTR_FAILURE_KIND) in kinds


def copy_attributes(source: optuna.Study, target: optuna.Study) -> None:
    """Copy what samplers keep in a study to another, such as how far a quasi-random sequence has got."""
    target_attributes = internals.study_attributes(target)
    for key, value in internals.study_attributes(source).items():
        if target_attributes.get(key) != value:
            internals.set_study_attribute(target, key, value)


def _as_shown(trial: FrozenTrial, values: Sequence[float] = (math.nan,)) -> FrozenTrial:
    """Return a trial as a sampler sees it: complete if it has values."""
    has_values = not math.isnan(values[0])
    # A trial that somebody put in the queue of the study must not wait here, too: it would be returned as a proposal.
    state = TrialState.RUNNING if trial.state == TrialState.RUNNING else TrialState.FAIL
    sampler_trial = copy(trial)
    sampler_trial.state = TrialState.COMPLETE if has_values else state
    sampler_trial.values = [float(value) for value in values] if has_values else None
    sampler_trial.datetime_start = sampler_trial.datetime_complete = trial.datetime_start or datetime.now()
    sampler_trial.user_attrs = {key: value for key, value in trial.user_attrs.items() if key == ATTR_SECONDS}
    if not trial.state.is_finished():
        constraints = trial.user_attrs.get(ATTR_CONSTRAINTS, {})
        sampler_trial.system_attrs = {**trial.system_attrs, **internals.constraint_attributes(constraints)}
    if trial.state == TrialState.FAIL:
        sampler_trial.intermediate_values = {}
    return sampler_trial
