"""Optuna: reads and writes a study below the public API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy
from optuna import Study, Trial, create_study
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

CACHED_PLACES: dict[int, tuple[int, int]] = {}
"""Study and number of each trial by its id, if ids and numbers are the same. It is cached because ten thousand entries
take milliseconds."""


def id_of(trial: FrozenTrial) -> int:
    """Return the id of a trial in its storage. It differs from the public number if a database holds several
    studies."""
    return trial._trial_id


def trial_with_id(study: Study, trial_id: int) -> FrozenTrial | None:
    """Return a trial; None if it does not exist. The public API of a study returns all trials."""
    try:
        return study._storage.get_trial(trial_id)
    except KeyError:
        return None


def count_trials(address: str, study: str) -> int:
    """Return how many trials a study has in a database; 0 if the database does not have the study.

    Optuna's own functions (5.0), also ``get_all_study_summaries()``, read all trials.

    Raises:
        SQLAlchemyError: It is not a database of studies.
    """
    count = "SELECT COUNT(*) FROM trials JOIN studies USING (study_id) WHERE study_name = :study"
    engine = sqlalchemy.create_engine(address)
    try:
        with engine.connect() as connection:
            return int(connection.execute(sqlalchemy.text(count), {"study": study}).scalar_one())
    finally:
        engine.dispose()


def close(study: Study) -> None:
    """Close the connections to a study's database. They are opened again when the study is used.

    A storage (Optuna 5.0) has no public method for that.
    """
    backend = getattr(study._storage, "_backend", study._storage)  # an RDBStorage is wrapped in a cache
    if isinstance(backend, RDBStorage):
        backend.engine.dispose()


def handle(study: Study, trial_id: int) -> Trial:
    """Return a trial that can be changed. Publicly only ``ask()`` returns one."""
    return Trial(study, trial_id)


def add_trial(study: Study, trial: FrozenTrial) -> int:
    """Add a trial and return its id. ``study.add_trial()`` returns nothing, and other processes may add trials, too."""
    return study._storage.create_new_trial(study._study_id, template_trial=trial)


def update_trial(study: Study, trial_id: int, trial: FrozenTrial) -> None:
    """Update an unfinished trial of a study with the attributes, reports and state of ``trial``."""
    for name, value in trial.system_attrs.items():
        set_system_attribute(study, trial_id, name, value)
    for name, value in trial.user_attrs.items():
        set_user_attribute(study, trial_id, name, value)
    for step, value in trial.intermediate_values.items():
        set_intermediate_value(study, trial_id, step, value)
    if trial.state.is_finished():
        study._storage.set_trial_state_values(trial_id, trial.state, trial.values)


def set_intermediate_value(study: Study, trial_id: int, step: int, value: float) -> None:
    """Record a report; it replaces an earlier one of the same step.

    ``trial.report()`` keeps the first value of a step, and reads the whole trial from the database before it writes.
    """
    study._storage.set_trial_intermediate_value(trial_id, step, value)


def set_user_attribute(study: Study, trial_id: int, key: str, value: Any) -> None:
    """Set a user attribute, without reading the trial from the database as ``trial.set_user_attr()`` does."""
    study._storage.set_trial_user_attr(trial_id, key, value)


def set_system_attribute(study: Study, trial_id: int, key: str, value: Any) -> None:
    """Set a system attribute of a trial. Publicly only samplers can do so."""
    study._storage.set_trial_system_attr(trial_id, key, value)


def study_attributes(study: Study) -> Mapping[str, Any]:
    """Return the system attributes of a study, where samplers keep data. Optuna 5 has no public name for them."""
    return study._storage.get_study_system_attrs(study._study_id)


def set_study_attribute(study: Study, key: str, value: Any) -> None:
    """Set a system attribute of a study. Publicly only samplers can do so."""
    study._storage.set_study_system_attr(study._study_id, key, value)


def constraint_attributes(constraints: Mapping[str, float]) -> dict[str, float]:
    """Return the system attributes that hold a trial's constraints.

    The public ``trial.set_constraint()`` and ``create_trial()`` do not work for a trial of :func:`study_of`.
    """
    return {f"constraints:{name}": value for name, value in constraints.items()}


def tell_end(study: Study, number: int, values: Sequence[float] | None) -> None:
    """Tell a study the values of a finished trial; None for one that failed.

    A sampler that has nothing left to propose then stops the study, which is an error for Optuna outside
    ``optimize()``. Here it has no effect.
    """
    study._thread_local.in_optimize_loop = True
    study.tell(number, values, state=TrialState.FAIL if values is None else TrialState.COMPLETE)


def study_of(
    trials: Sequence[FrozenTrial], best: int | None, directions: Sequence[StudyDirection], sampler: BaseSampler
) -> Study:
    """Return a study in memory with these trials, not with copies of them.

    ``study.add_trial()`` copies and checks each trial, which would take most of the time of a proposal.

    Args:
        trials: The trials in the order of their numbers, which are also their ids. Some may be left out, and they may
            change later.
        best: Index of the complete trial with the best first value; None if no trial is complete.
        directions: Whether each objective is minimized or maximized.
        sampler: The sampler of the study.
    """
    study = create_study(directions=list(directions), sampler=sampler)
    storage, study_id = study._storage, study._study_id
    assert isinstance(storage, InMemoryStorage)
    storage._studies[study_id].trials = list(trials)
    storage._studies[study_id].best_trial_id = None if best is None else id_of(trials[best])
    assert study_id == 0
    last_id = id_of(trials[-1]) if trials else -1
    if last_id == len(trials) - 1:
        for number in range(len(CACHED_PLACES), len(trials)):
            CACHED_PLACES[number] = (study_id, number)
        places = CACHED_PLACES.copy()  # entries beyond the last trial are never used
    else:
        places = {id_of(trial): (study_id, place) for place, trial in enumerate(trials)}
    storage._trial_id_to_study_id_and_number, storage._max_trial_id = places, last_id
    return study
