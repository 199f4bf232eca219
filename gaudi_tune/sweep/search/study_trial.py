"""A trial of a study, as it follows from the state of a trial in the record of the sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import cache
from typing import Any

from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as StudyState

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.base.words import last_line
from gaudi_tune.define.objective import Objective
from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.record.events import Status
from gaudi_tune.sweep.record.outcome import failure_of
from gaudi_tune.sweep.record.trial_state import TrialState
from gaudi_tune.sweep.search.sampler_view import (
    ATTR_CONSTRAINTS,
    ATTR_FAILURE,
    ATTR_FAILURE_KIND,
    ATTR_NUMBER,
    ATTR_POINT,
    ATTR_SECONDS,
)

INTERRUPTED = Failure(FailureKind.INTERRUPTED, "the sweep was interrupted before it had saved this trial")
RESULTS = {ATTR_CONSTRAINTS, ATTR_FAILURE, ATTR_FAILURE_KIND, ATTR_POINT, ATTR_SECONDS}
"""User attributes of a trial that say how it trained."""
STATES: dict[Status, StudyState] = {
    "finished": StudyState.COMPLETE,
    "stopped early": StudyState.PRUNED,
    "failed": StudyState.FAIL,
}
"""The states in a study of trials that have ended; others run there."""


def number_in_sweep(trial: FrozenTrial) -> int:
    """Return the number that a trial of a study has in its sweep."""
    return int(trial.user_attrs.get(ATTR_NUMBER, trial.number + 1))


_range_in = cache(json_to_distribution)
"""Returns the range that a text describes; most trials have the same ranges."""


def snapshot(trial: FrozenTrial) -> dict[str, Any]:
    """Return a trial of a study as plain data, which is not copied."""
    return {
        "number": trial.number,
        "state": trial.state.name,
        "values": trial.values,
        "params": trial.params,
        "ranges": {name: distribution_to_json(range_) for name, range_ in trial.distributions.items()},
        "user_attrs": trial.user_attrs,
        "system_attrs": trial.system_attrs,
        "curve": trial.intermediate_values,
        "began": trial.datetime_start and trial.datetime_start.isoformat(),
        "ended": trial.datetime_complete and trial.datetime_complete.isoformat(),
    }


def from_snapshot(snapshot: Mapping[str, Any]) -> FrozenTrial:
    """Return the trial of a :func:`snapshot`; what is none raises a ValueError, TypeError or KeyError."""
    return FrozenTrial(
        number=snapshot["number"],
        trial_id=snapshot["number"],
        state=StudyState[snapshot["state"]],
        value=None,
        values=snapshot["values"],
        datetime_start=_time_in(snapshot["began"]),
        datetime_complete=_time_in(snapshot["ended"]),
        params=snapshot["params"],
        distributions={name: _range_in(text) for name, text in snapshot["ranges"].items()},
        user_attrs=snapshot["user_attrs"],
        system_attrs=snapshot["system_attrs"],
        intermediate_values=snapshot["curve"],
    )


def _time_in(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def with_results(trial: FrozenTrial, results: TrialState, objectives: Sequence[Objective]) -> FrozenTrial:
    """Return a trial of a study with what the sweep knows of it; its configuration and its start stay.

    A trial that ended without a finite value has failed: a study has no other state for it.
    """
    user_attributes = {name: value for name, value in trial.user_attrs.items() if name not in RESULTS}
    if results.point and len(objectives) > 1:
        user_attributes[ATTR_POINT] = list(results.point)
    if results.constraints:
        user_attributes[ATTR_CONSTRAINTS] = results.constraints
    if results.seconds_each:
        user_attributes[ATTR_SECONDS] = results.seconds_each
    curve, state, values = dict(results.curve), STATES.get(results.status, StudyState.RUNNING), None
    failure = failure_of(results, objectives)
    if failure is not None:
        state = StudyState.FAIL
        # What it counts with may be less than its best report: the best of those that were saved.
        user_attributes |= {ATTR_POINT: list(results.point), **_failure_attributes(failure)}
    elif state == StudyState.COMPLETE:
        values = [float(value) for value in results.point]
    elif state == StudyState.PRUNED and len(objectives) == 1:
        values = [curve[max(curve)]]  # as Optuna does
    study_trial = copy(trial)
    study_trial.state, study_trial.values = state, values
    study_trial.intermediate_values, study_trial.user_attrs = curve, user_attributes
    study_trial.datetime_start = trial.datetime_start or datetime.now()
    if state.is_finished():
        study_trial.datetime_complete = datetime.now()
        study_trial.system_attrs = {**trial.system_attrs, **internals.constraint_attributes(results.constraints)}
    return study_trial


def as_interrupted(trial: FrozenTrial) -> FrozenTrial:
    """Return a trial of a study that nobody trains any more, failed."""
    failed = copy(trial)
    failed.state, failed.datetime_complete = StudyState.FAIL, datetime.now()
    failed.user_attrs = {**trial.user_attrs, **_failure_attributes(INTERRUPTED)}
    return failed


def _failure_attributes(failure: Failure) -> dict[str, str]:
    """Return the user attributes of a trial that failed: the kind, and the last line of the text."""
    return {ATTR_FAILURE: last_line(failure.text), ATTR_FAILURE_KIND: failure.kind.value}
