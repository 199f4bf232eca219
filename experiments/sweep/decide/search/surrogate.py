"""What a sampler sees: every trial, running ones included, with its best value so far."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import datetime
from typing import Any

import numpy as np
import optuna
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from trainables.runtime.devices.device import OUT_OF_MEMORY
from trainables.runtime.internals.optuna import (
    constraint_attributes,
    set_study_attribute,
    study_attributes,
    study_of,
    tell,
)

ATTR_CONSTRAINTS = "constraints"
"""User attribute of a trial: the soft constraints it last reported."""
ATTR_FAILURE = "failure"
"""User attribute of a trial: why it failed."""


class Surrogate:
    """The trials of a study as a sampler is to see them, kept up from one proposal to the next.

    One that has reported is complete there, with its best value so far. Left to Optuna, each running one would count as
    bad, the promising ones for longest. One that has not reported is running; a failed one is left out of the model by
    Optuna, but one that diverged, or did not fit into the device's memory, counts as the worst there is, so that others
    keep away from it.
    """

    def __init__(self, record: optuna.Study) -> None:
        """Begin with no trial.

        Args:
            record: A study in memory, which replaces the object of a trial that changes.
        """
        self._record, self._values = record, list[float]()
        more = record.direction == StudyDirection.MAXIMIZE
        self._best_of, self._best, self._worst = (
            (max, np.nanargmax, np.nanmin) if more else (min, np.nanargmin, np.nanmax)
        )
        self._known: list[FrozenTrial] = []
        self._told: list[FrozenTrial] = []
        self._hopeless: set[int] = set()

    def study(self, sampler: BaseSampler, running: int | None = None, left_out: Collection[int] = ()) -> optuna.Study:
        """Return a study in memory with all trials in their order.

        Args:
            sampler: Is to propose, or to hear of the end of a trial.
            running: The trial that is about to end: it still runs.
            left_out: Trials that have no value there, as if they had failed.
        """
        for number, trial in enumerate(self._record.get_trials(deepcopy=False)):
            if number == len(self._known):
                self._known.append(trial)
                self._told.append(_as_told(trial))
                self._values.append(math.nan)
            elif self._known[number] is trial:
                continue
            self._take(number, trial)
        values = np.array(self._values)
        if np.isfinite(values).any():
            values[list(self._hopeless)] = self._worst(values)
        told = list(self._told)
        if running is not None:
            values[running], told[running] = math.nan, _as_told(self._known[running])
        for number in left_out:
            values[number], told[number] = math.nan, _as_told(self._known[number])
        best = int(self._best(values)) if np.isfinite(values).any() else None
        for trial, value in zip(told, values.tolist(), strict=True):
            if value == value:
                tell(trial, value)
        study = study_of(told, best, self._record.direction, sampler)
        carry_attributes(self._record, study)
        return study

    def _take(self, number: int, trial: FrozenTrial) -> None:
        self._known[number], self._told[number] = trial, _as_told(trial)
        curve = {} if trial.state == TrialState.FAIL else trial.intermediate_values
        self._values[number] = self._best_of(curve.values(), default=math.nan)
        diverged = str(trial.user_attrs.get(ATTR_FAILURE, "")).startswith("diverged")
        if diverged or ran_out_of_memory(trial):
            self._hopeless.add(number)


def ran_out_of_memory(trial: FrozenTrial) -> bool:
    """Whether a trial failed because the device's memory was full."""
    return trial.state == TrialState.FAIL and OUT_OF_MEMORY in str(trial.user_attrs.get(ATTR_FAILURE, ""))


def carry_attributes(source: optuna.Study, target: optuna.Study) -> None:
    """Copy what samplers keep in a study from one to the next, such as where a quasi-random sequence has got to."""
    there = study_attributes(target)
    for key, value in study_attributes(source).items():
        if there.get(key) != value:
            set_study_attribute(target, key, value)


def _as_told(trial: FrozenTrial) -> FrozenTrial:
    """Return a trial without a value, complete if a value is to follow."""
    # A trial that somebody put in the queue of the record would be handed out by the model in place of a proposal.
    state = TrialState.RUNNING if trial.state == TrialState.RUNNING else TrialState.FAIL
    attributes: dict[str, Any] = trial.system_attrs
    if not trial.state.is_finished():
        constraints = trial.user_attrs.get(ATTR_CONSTRAINTS, {})
        attributes = {**attributes, **constraint_attributes(constraints)}
    began = trial.datetime_start or datetime.now()
    return FrozenTrial(
        number=trial.number,
        trial_id=trial.number,
        state=state,
        value=None,
        datetime_start=began,
        datetime_complete=began,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={},
        system_attrs=attributes,
        intermediate_values={},
    )
