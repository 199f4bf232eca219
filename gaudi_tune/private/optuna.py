"""Optuna: reads and writes a study below the public API."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

import sqlalchemy
from optuna import Study, create_study
from optuna.distributions import distribution_to_json
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.orm import Session

from gaudi_tune.private.surfaces import part

with suppress(ImportError):
    from optuna.storages._cached_storage import _CachedStorage
    from optuna.storages._rdb import models

CACHED_PLACES: dict[int, tuple[int, int]] = {}
"""Study and number of each trial by its id, if ids and numbers are the same. It is cached because ten thousand entries
take milliseconds."""


def id_of(trial: FrozenTrial) -> int:
    """Return the id of a trial in its storage. It differs from the public number if a database holds several
    studies."""
    return trial._trial_id


def close(study: Study) -> None:
    """Close the connections to a study's database. They are opened again when the study is used.

    A storage (Optuna 5.0) has no public method for that.
    """
    backend = _backend(study)
    if isinstance(backend, RDBStorage):
        backend.engine.dispose()


def replace_trial(study: Study, trial: FrozenTrial) -> None:
    """Put ``trial`` in the place of the trial with its number, of the only study of a storage in memory."""
    storage = study._storage
    assert isinstance(storage, InMemoryStorage)
    storage._set_trial(trial.number, trial)  # ids are numbers


def _add_ended(
    study: Study, trials: Sequence[FrozenTrial], ids: dict[int, int], stored_trials: Mapping[int, FrozenTrial]
) -> dict[int, int]:
    """Write new trials by the public API, up to the first that has not ended: nothing could change it later."""
    new_ids = dict[int, int]()
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.state.is_finished() and trial.number == len(ids) + len(new_ids):
            study.add_trial(trial)
            new_ids[trial.number] = id_of(study.get_trials(deepcopy=False)[-1])
    return new_ids


def _progress_in_study(study: Study) -> dict[int, tuple[TrialState, int]]:
    trials = study.get_trials(deepcopy=False)
    return {id_of(trial): (trial.state, len(trial.intermediate_values)) for trial in trials}


@part("study-file", _add_ended)
def write_trials(
    study: Study, trials: Sequence[FrozenTrial], ids: dict[int, int], stored_trials: Mapping[int, FrozenTrial]
) -> dict[int, int]:
    """Write trials to a study in one transaction: new ones, and what has changed in others, also in ended ones.

    The public API (Optuna 5.0) has a transaction for each attribute and report, and refuses to change an ended trial.

    Args:
        study: The study.
        trials: The trials.
        ids: By number, the ids of the trials that the study has.
        stored_trials: By number, these trials as the study has them.

    Returns:
        The ids of the new trials, by number.
    """
    storage, study_id = _backend(study), study._study_id
    if isinstance(storage, InMemoryStorage):
        for trial in trials:
            if trial.number in ids:
                storage._set_trial(ids[trial.number], trial)
        new_trials = [trial for trial in trials if trial.number not in ids]
        return {trial.number: storage.create_new_trial(study_id, trial) for trial in new_trials}
    assert isinstance(storage, RDBStorage)
    with Session(storage.engine) as session, session.begin():
        new_ids = _insert_trials(session, study_id, [trial for trial in trials if trial.number not in ids])
        old_trials = [trial for trial in trials if trial.number in ids]
        for trial in old_trials:
            model = session.get_one(models.TrialModel, ids[trial.number])
            model.state = trial.state
            model.datetime_complete = trial.datetime_complete
        _delete_changed(session, [(ids[trial.number], trial, stored_trials[trial.number]) for trial in old_trials])
        _insert_parts(
            session, [((ids | new_ids)[trial.number], trial, stored_trials.get(trial.number)) for trial in trials]
        )
    if isinstance(study._storage, _CachedStorage):  # which reads an ended trial only once
        with study._storage._lock:
            study._storage._studies.pop(study_id, None)
    return new_ids


def _insert_trials(session: Session, study_id: int, trials: Sequence[FrozenTrial]) -> dict[int, int]:
    """Insert trials without their parts, and return their ids by number."""
    in_study = models.TrialModel.study_id == study_id
    start = session.scalar(sqlalchemy.select(sqlalchemy.func.count()).select_from(models.TrialModel).where(in_study))
    rows = [
        models.TrialModel(
            study_id=study_id,
            number=number,  # another program may have added trials
            state=trial.state,
            datetime_start=trial.datetime_start,
            datetime_complete=trial.datetime_complete,
        )
        for number, trial in enumerate(trials, start=start or 0)
    ]
    session.add_all(rows)
    session.flush()
    return {trial.number: cast(int, row.trial_id) for trial, row in zip(trials, rows, strict=True)}


def _delete_changed(session: Session, changes: Sequence[tuple[int, FrozenTrial, FrozenTrial]]) -> None:
    """Delete the parts of trials that differ from those before; each trial is given with its id."""
    reports = models.TrialIntermediateValueModel
    for trial_id, trial, old_trial in changes:
        curve = trial.intermediate_values
        steps = [step for step, value in old_trial.intermediate_values.items() if curve.get(step) != value]
        if steps:
            session.execute(sqlalchemy.delete(reports).where(reports.trial_id == trial_id, reports.step.in_(steps)))
        for model, parts, parts_before in _small_parts(trial, old_trial):
            if parts_before and parts != parts_before:
                session.execute(sqlalchemy.delete(model).where(model.trial_id == trial_id))


def _insert_parts(session: Session, changes: Sequence[tuple[int, FrozenTrial, FrozenTrial | None]]) -> None:
    """Insert the parts of trials that differ from those before; each trial is given with its id."""
    rows: dict[Any, list[dict[str, Any]]] = {}
    for trial_id, trial, old_trial in changes:
        curve_before = old_trial.intermediate_values if old_trial else {}
        reports = rows.setdefault(models.TrialIntermediateValueModel, [])
        for step, value in trial.intermediate_values.items():
            if curve_before.get(step) != value:
                stored, kind = models.TrialIntermediateValueModel.intermediate_value_to_stored_repr(value)
                report = {"step": step, "intermediate_value": stored, "intermediate_value_type": kind}
                reports.append({"trial_id": trial_id, **report})
        for model, parts, parts_before in _small_parts(trial, old_trial):
            if parts != parts_before:
                rows.setdefault(model, []).extend({"trial_id": trial_id, **part} for part in parts)
    for model, new_rows in rows.items():
        if new_rows:
            session.execute(sqlalchemy.insert(model), new_rows)


Rows: TypeAlias = list[dict[str, Any]]


def _small_parts(trial: FrozenTrial, old_trial: FrozenTrial | None) -> list[tuple[Any, Rows, Rows]]:
    """Return, for each table but that of the reports, the rows of a trial now and before."""
    rows_before = _rows(old_trial) if old_trial else {}
    return [(model, rows, rows_before.get(model, [])) for model, rows in _rows(trial).items()]


def _rows(trial: FrozenTrial) -> dict[Any, Rows]:
    """Return the rows of a trial for each table but that of the reports."""
    params = [
        {
            "param_name": name,
            "param_value": distribution.to_internal_repr(trial.params[name]),
            "distribution_json": distribution_to_json(distribution),
        }
        for name, distribution in trial.distributions.items()
    ]
    values = []
    for place, value in enumerate(trial.values or ()):
        stored, kind = models.TrialValueModel.value_to_stored_repr(value)
        values.append({"objective": place, "value": stored, "value_type": kind})
    return {
        models.TrialParamModel: params,
        models.TrialValueModel: values,
        models.TrialUserAttributeModel: _attribute_rows(trial.user_attrs),
        models.TrialSystemAttributeModel: _attribute_rows(trial.system_attrs),
    }


def _attribute_rows(attributes: Mapping[str, Any]) -> Rows:
    return [{"key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]


@part("study-file", _progress_in_study)
def progress_by_id(study: Study) -> dict[int, tuple[TrialState, int]] | None:
    """Return the state and the number of reports of each trial that a study has in its database now, by id.

    Returns None if SQLite finds that the file is damaged.

    Raises:
        SQLAlchemyError: It cannot be read at all.
    """
    storage = _backend(study)
    if isinstance(storage, InMemoryStorage):
        return _progress_in_study(study)
    assert isinstance(storage, RDBStorage)
    storage.engine.dispose()  # a connection may still have a file that was deleted
    trials_table, reports = models.TrialModel, models.TrialIntermediateValueModel
    query = (
        sqlalchemy.select(trials_table.trial_id, trials_table.state, sqlalchemy.func.count(reports.step))
        .outerjoin(reports, reports.trial_id == trials_table.trial_id)
        .where(trials_table.study_id == study._study_id)
        .group_by(trials_table.trial_id, trials_table.state)
    )
    with Session(storage.engine) as session:
        if storage.engine.name == "sqlite" and session.scalar(sqlalchemy.text("PRAGMA quick_check")) != "ok":
            return None
        rows = session.execute(query).all()
    return {int(trial_id): (state, n_reports) for trial_id, state, n_reports in rows}


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite says that a file is no whole database, or an empty one, not that it is locked or full."""
    while error is not None:
        if type(error) is sqlite3.DatabaseError:  # that is, none of its subclasses
            return True
        if isinstance(error, sqlite3.OperationalError):  # Python 3.10 has no number of the error
            return str(error).startswith("no such table")
        error = getattr(error, "orig", None) or error.__cause__
    return False


def _backend(study: Study) -> BaseStorage:
    """Return a study's storage, without the cache that an RDBStorage is wrapped in."""
    return getattr(study._storage, "_backend", study._storage)


def study_attributes(study: Study) -> Mapping[str, Any]:
    """Return a copy of a study's system attributes, where samplers keep data. Optuna 5 has no public name for them, and
    Optuna 4 returns its own dictionary, which another thread may change."""
    return dict(study._storage.get_study_system_attrs(study._study_id))


def set_study_attribute(study: Study, key: str, value: Any) -> None:
    """Set a system attribute of a study. Publicly only samplers can do so."""
    study._storage.set_study_system_attr(study._study_id, key, value)


def constraint_attributes(constraints: Mapping[str, float]) -> dict[str, Any]:
    """Return the system attributes that hold a trial's constraints. Optuna 4 keeps no names of them.

    The public ``trial.set_constraint()`` and ``create_trial()`` do not work for a trial of :func:`study_of`.
    """
    if not hasattr(FrozenTrial, "constraints"):  # Optuna 4
        return {"constraints": list(constraints.values())} if constraints else {}
    return {f"constraints:{name}": value for name, value in constraints.items()}


def is_feasible(trial: FrozenTrial) -> bool:
    """Whether a trial violates none of its constraints. ``trial.constraints`` is public from Optuna 5 on."""
    values = trial.constraints.values() if hasattr(trial, "constraints") else trial.system_attrs.get("constraints", ())
    return all(value <= 0 for value in values)


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
