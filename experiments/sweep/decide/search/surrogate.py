"""What a sampler sees: every trial, running ones included, with its best value so far."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
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
GUESSED = "guessed"
"""User attribute of a trial that is a guess."""


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
        self._record, self._values = record, np.empty(0)
        more = record.direction == StudyDirection.MAXIMIZE
        self._best_of, self._best, self._worst = (
            (max, np.nanargmax, np.nanmin) if more else (min, np.nanargmin, np.nanmax)
        )
        self._known: list[FrozenTrial] = []
        self._told: list[FrozenTrial] = []
        self._unfinished: set[int] = set()
        self._hopeless: set[int] = set()
        self.guessed: set[int] = set()
        """Trials that are guesses, at the last :meth:`update`."""
        self.ran_out: set[int] = set()
        """Trials that did not fit into the device's memory, likewise."""

    def update(self) -> None:
        """Take what has changed in the record, in which a trial that has ended stays as it is."""
        trials = self._record.get_trials(deepcopy=False)
        new = range(len(self._known), len(trials))
        self._values = np.append(self._values, np.full(len(new), math.nan))
        self._known += trials[new.start :]
        self._told += trials[new.start :]
        for number in [number for number in self._unfinished if self._known[number] is not trials[number]] + [*new]:
            self._take(number, trials[number])

    def study(
        self,
        sampler: BaseSampler,
        running: int | None = None,
        left_out: Collection[int] = (),
        most: int | None = None,
    ) -> optuna.Study:
        """Return a study in memory with all trials in their order.

        Args:
            sampler: Is to propose, or to hear of the end of a trial.
            running: The trial that is about to end: it still runs.
            left_out: Trials that have no value there, as if they had failed.
            most: With how many trials that have a value, the best tenth of them and any of the others, and no trial
                without one; None: with all there are.
        """
        self.update()
        values = self._values.copy()
        worst = self._worst(values) if np.isfinite(values).any() else math.nan
        for number in self._hopeless:
            values[number], self._told[number] = worst, _as_told(self._known[number], worst)
        told = list(self._told)
        for number in [*([] if running is None else [running]), *left_out]:
            values[number], told[number] = math.nan, _as_told(self._known[number])
        if most is not None and np.isfinite(values).sum() > most:
            chosen = self._chosen(values, most)
            values, told = values[chosen], [told[number] for number in chosen]
        best = int(self._best(values)) if np.isfinite(values).any() else None
        study = study_of(told, best, self._record.direction, sampler)
        carry_attributes(self._record, study)
        return study

    def _chosen(self, values: npt.NDArray[np.float64], most: int) -> list[int]:
        """Return the trials with the best values, a tenth of ``most``, and any others, by number."""
        there = np.flatnonzero(np.isfinite(values))
        more = self._record.direction == StudyDirection.MAXIMIZE
        ranked = there[np.argsort(-values[there] if more else values[there], kind="stable")]
        best = most // 10
        others = np.random.default_rng(len(values)).choice(ranked[best:], most - best, replace=False)
        return sorted([*ranked[:best].tolist(), *others.tolist()])

    def _take(self, number: int, trial: FrozenTrial) -> None:
        curve = {} if trial.state == TrialState.FAIL else trial.intermediate_values
        self._values[number] = self._best_of(curve.values(), default=math.nan)
        self._known[number], self._told[number] = trial, _as_told(trial, self._values[number])
        (self._unfinished.discard if trial.state.is_finished() else self._unfinished.add)(number)
        diverged = str(trial.user_attrs.get(ATTR_FAILURE, "")).startswith("diverged")
        if ran_out_of_memory(trial):
            self.ran_out.add(number)
        if diverged or number in self.ran_out:
            self._hopeless.add(number)
        if GUESSED in trial.user_attrs:
            self.guessed.add(number)


def ran_out_of_memory(trial: FrozenTrial) -> bool:
    """Whether a trial failed because the device's memory was full."""
    return trial.state == TrialState.FAIL and OUT_OF_MEMORY in str(trial.user_attrs.get(ATTR_FAILURE, ""))


def carry_attributes(source: optuna.Study, target: optuna.Study) -> None:
    """Copy what samplers keep in a study from one to the next, such as where a quasi-random sequence has got to."""
    there = study_attributes(target)
    for key, value in study_attributes(source).items():
        if there.get(key) != value:
            set_study_attribute(target, key, value)


def _as_told(trial: FrozenTrial, value: float = math.nan) -> FrozenTrial:
    """Return a trial as a sampler is to see it: complete if it has a value."""
    # A trial that somebody put in the queue of the record would be handed out by the model in place of a proposal.
    state = TrialState.RUNNING if trial.state == TrialState.RUNNING else TrialState.FAIL
    attributes: dict[str, Any] = trial.system_attrs
    if not trial.state.is_finished():
        constraints = trial.user_attrs.get(ATTR_CONSTRAINTS, {})
        attributes = {**attributes, **constraint_attributes(constraints)}
    began = trial.datetime_start or datetime.now()
    told = FrozenTrial(
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
    if value == value:
        tell(told, value)
    return told
