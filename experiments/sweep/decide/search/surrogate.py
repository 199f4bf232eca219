"""What a sampler sees: every trial, running ones included, as if it had trained in full."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from experiments.sweep.decide.search.extrapolation import extrapolate
from experiments.sweep.define.budget import Budget
from experiments.sweep.define.objective import Mode
from trainables.runtime.devices.device import OUT_OF_MEMORY
from trainables.runtime.internals.optuna import (
    SharedTrial,
    constraint_attributes,
    set_study_attribute,
    study_attributes,
)

ATTR_CONSTRAINTS = "constraints"
"""User attribute of a trial: the soft constraints it last reported."""
ATTR_FAILURE = "failure"
"""User attribute of a trial: why it failed."""


def model_study(record: optuna.Study, sampler: BaseSampler, budget: Budget, running: int | None = None) -> optuna.Study:
    """Return a study in memory from which ``sampler`` is to propose.

    It has the trials of ``record`` in their order. One that has reported is complete there, with the value to
    expect of it at the full budget (:mod:`experiments.sweep.decide.search.extrapolation`). Left to Optuna, a
    stopped trial would look complete at the wrong budget, and each running one would count as bad, the promising
    ones for longest. One that has not reported is running (and counts as bad, which keeps the next proposal away
    from it); a failed one is left out of the model by Optuna, but one that diverged, or did not fit into the device's
    memory, counts as the worst there is, so that others keep away from it.

    Args:
        record: Has every report.
        sampler: Is to propose, or to hear of the end of a trial.
        budget: Of a full trial.
        running: The trial that is about to end: it still runs.
    """
    study = optuna.create_study(direction=record.direction, sampler=sampler)
    trials = record.get_trials(deepcopy=False)
    mode: Mode = "max" if record.direction == StudyDirection.MAXIMIZE else "min"
    curves = [{} if trial.state == TrialState.FAIL else trial.intermediate_values for trial in trials]
    values = extrapolate(curves, mode, [*budget.rungs(), budget.total])
    worst = (min if mode == "max" else max)((value for value in values if value is not None), default=None)
    for trial, value in zip(trials, values, strict=True):
        diverged = str(trial.user_attrs.get(ATTR_FAILURE, "")).startswith("diverged")
        hopeless = diverged or ran_out_of_memory(trial)
        study.add_trial(_as_told(trial, None if trial.number == running else worst if hopeless else value))
    carry_attributes(record, study)
    return study


def ran_out_of_memory(trial: FrozenTrial) -> bool:
    """Whether a trial failed because the device's memory was full."""
    return OUT_OF_MEMORY in str(trial.user_attrs.get(ATTR_FAILURE, ""))


def carry_attributes(source: optuna.Study, target: optuna.Study) -> None:
    """Copy what samplers keep in a study from one to the next, such as where a quasi-random sequence has got to."""
    there = study_attributes(target)
    for key, value in study_attributes(source).items():
        if there.get(key) != value:
            set_study_attribute(target, key, value)


def _as_told(trial: FrozenTrial, value: float | None) -> FrozenTrial:
    # A trial that somebody put in the queue of the record would be handed out by the model in place of a proposal.
    unknown = TrialState.FAIL if trial.state == TrialState.WAITING else trial.state
    state = TrialState.COMPLETE if value is not None else unknown
    attributes: dict[str, Any] = trial.system_attrs
    if state == TrialState.COMPLETE and not trial.state.is_finished():
        constraints = trial.user_attrs.get(ATTR_CONSTRAINTS, {})
        attributes = {**attributes, **constraint_attributes(constraints)}
    began = trial.datetime_start or datetime.now()
    return SharedTrial(
        number=trial.number,
        trial_id=trial.number,
        state=state,
        value=value,
        datetime_start=began,
        datetime_complete=began if state.is_finished() else None,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={},
        system_attrs=attributes,
        intermediate_values={},
    )
