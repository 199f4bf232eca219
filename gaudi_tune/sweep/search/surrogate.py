"""What a sampler sees: every trial, running ones included, with its best value (or point) so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from gaudi_tune.define.objective import Objective, scores_of
from gaudi_tune.devices.device import OUT_OF_MEMORY
from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.record.front import in_order

ATTR_CONSTRAINTS = "constraints"
"""User attribute of a trial: the soft constraints it last reported."""
ATTR_POINT = "point"
"""User attribute of a trial: all objectives in its best report, where there are several."""
ATTR_FAILURE = "failure"
"""User attribute of a trial: why it failed."""
ATTR_NUMBER = "trial"
"""User attribute of a trial: its number in the sweep, from 1, where that is not its number in the study plus one."""
ATTR_SECONDS = "seconds_each"
"""User attribute of a trial: how long it trains from one report to the next."""


class Told(NamedTuple):
    """How many trials with a value a sampler is told of at most: with thousands, a proposal would take too long."""

    best: int
    """Those with the best values."""
    others: int
    """Any others."""


class Surrogate:
    """The trials of a study as a sampler is to see them, kept up from one proposal to the next.

    One that has reported is complete there, with its best value so far. Left to Optuna, each running one would count as
    bad, the promising ones for longest. One that has not reported is running; a failed one is left out of the model by
    Optuna, but one that diverged, or did not fit into the device's memory, counts as the worst there is, so that others
    keep away from it.
    """

    def __init__(self, record: optuna.Study, objectives: Sequence[Objective]) -> None:
        """Begin with no trial.

        Args:
            record: A study in memory, which replaces the object of a trial that changes.
            objectives: What its values are values of.
        """
        self._record, self._objectives = record, objectives
        self._values = np.empty((0, len(objectives)))
        """The point of each trial, NaN where it has none; (trials, objectives)."""
        self._scores = np.empty((0, len(objectives)))
        """The scores of these points."""
        self._known: list[FrozenTrial] = []
        self._told: list[FrozenTrial] = []
        self._unfinished: set[int] = set()
        self._hopeless: dict[int, list[float]] = {}
        """Trials that count as the worst there is, and what each was told to be worth last."""
        self.ran_out: set[int] = set()
        """Trials that did not fit into the device's memory, at the last :meth:`update`."""

    def update(self) -> None:
        """Take what has changed in the record, in which a trial that has ended stays as it is."""
        trials = self._record.get_trials(deepcopy=False)
        new = range(len(self._known), len(trials))
        without_value = np.full((len(new), len(self._objectives)), math.nan)
        self._values = np.append(self._values, without_value, axis=0)
        self._scores = np.append(self._scores, without_value, axis=0)
        self._known += trials[new.start :]
        self._told += trials[new.start :]
        for number in [number for number in self._unfinished if self._known[number] is not trials[number]] + [*new]:
            self._take(number, trials[number])

    def study(self, sampler: BaseSampler, running: int | None = None, of: Told | None = None) -> optuna.Study:
        """Return a study in memory with trials in their order.

        Args:
            sampler: Is to propose, or to hear of the end of a trial.
            running: The trial that is about to end: it still runs.
            of: With so many trials that have a value, and those that run; None, or where there are no more: with all.
        """
        self.update()
        scores = self._scores.copy()
        worst = values = [math.nan] * len(self._objectives)
        if np.isfinite(scores).any():
            places = np.nanargmin(scores, axis=0), range(len(self._objectives))
            worst, values = scores[places].tolist(), self._values[places].tolist()
        for number, before in self._hopeless.items():
            scores[number] = worst
            if before != values:
                self._told[number], self._hopeless[number] = _as_told(self._known[number], values), values
        told = list(self._told)
        if running is not None:
            scores[running], told[running] = math.nan, _as_told(self._known[running])
        if of is not None and np.isfinite(scores[:, 0]).sum() > sum(of):
            chosen = self._chosen(scores, of)
            scores, told = scores[chosen], [told[number] for number in chosen]
        best = int(np.nanargmax(scores[:, 0])) if np.isfinite(scores).any() else None
        study = internals.study_of(told, best, self._record.directions, sampler)
        carry_attributes(self._record, study)
        return study

    def _chosen(self, scores: npt.NDArray[np.float64], of: Told) -> list[int]:
        """Return the numbers of the trials that a sampler is told of."""
        valued = np.flatnonzero(np.isfinite(scores[:, 0]))
        best, rest = np.split(valued[in_order(scores[valued].tolist())], [of.best])
        others = np.random.default_rng(len(scores)).choice(rest, of.others, replace=False)
        without = np.flatnonzero(np.isnan(scores[:, 0])).tolist()
        running = [number for number in without if number in self._unfinished]
        return sorted([*best.tolist(), *others.tolist(), *running])

    def _take(self, number: int, trial: FrozenTrial) -> None:
        point = [] if trial.state == TrialState.FAIL else point_so_far(trial, self._objectives)
        values = point or [math.nan] * len(self._objectives)
        self._values[number], self._scores[number] = values, scores_of(self._objectives, values)
        self._known[number], self._told[number] = trial, _as_told(trial, values)
        if trial.state.is_finished():
            self._unfinished.discard(number)
        else:
            self._unfinished.add(number)
        diverged = str(trial.user_attrs.get(ATTR_FAILURE, "")).startswith("diverged")
        if ran_out_of_memory(trial):
            self.ran_out.add(number)
        if diverged or number in self.ran_out:
            self._hopeless[number] = []


def point_so_far(trial: FrozenTrial, objectives: Sequence[Objective]) -> list[float]:
    """Return all objectives in the best report of a trial of the record; empty if it has not reported."""
    curve = trial.intermediate_values.values()
    if not curve:
        return []
    return list(trial.user_attrs.get(ATTR_POINT) or [objectives[0].best(curve)])


def ran_out_of_memory(trial: FrozenTrial) -> bool:
    """Whether a trial failed because the device's memory was full."""
    return trial.state == TrialState.FAIL and OUT_OF_MEMORY in str(trial.user_attrs.get(ATTR_FAILURE, ""))


def carry_attributes(source: optuna.Study, target: optuna.Study) -> None:
    """Copy what samplers keep in a study from one to the next, such as where a quasi-random sequence has got to."""
    there = internals.study_attributes(target)
    for key, value in internals.study_attributes(source).items():
        if there.get(key) != value:
            internals.set_study_attribute(target, key, value)


def _as_told(trial: FrozenTrial, values: Sequence[float] | npt.NDArray[np.float64] = (math.nan,)) -> FrozenTrial:
    """Return a trial as a sampler is to see it: complete if it has values."""
    known = bool(values[0] == values[0])
    # A trial that somebody put in the queue of the record would be handed out by the model in place of a proposal.
    state = TrialState.RUNNING if trial.state == TrialState.RUNNING else TrialState.FAIL
    attributes: dict[str, Any] = trial.system_attrs
    if not trial.state.is_finished():
        constraints = trial.user_attrs.get(ATTR_CONSTRAINTS, {})
        attributes = {**attributes, **internals.constraint_attributes(constraints)}
    began = trial.datetime_start or datetime.now()
    return FrozenTrial(
        number=trial.number,
        trial_id=trial.number,
        state=TrialState.COMPLETE if known else state,
        value=None,
        values=[float(value) for value in values] if known else None,
        datetime_start=began,
        datetime_complete=began,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={key: value for key, value in trial.user_attrs.items() if key == ATTR_SECONDS},
        system_attrs=attributes,
        intermediate_values={} if trial.state == TrialState.FAIL else trial.intermediate_values,
    )
