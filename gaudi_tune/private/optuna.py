"""Optuna: reading and writing a study below the public API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy
from optuna import Study, Trial, create_study
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

PLACES: dict[int, tuple[int, int]] = {}
"""Study and number of a trial by its id, where these are the same; made once, since ten thousand take milliseconds."""


def id_of(trial: FrozenTrial) -> int:
    """Return the id of a trial in its storage. The public number is another where a database holds several studies."""
    return trial._trial_id


def trial_with_id(study: Study, trial_id: int) -> FrozenTrial | None:
    """Return a trial, None if there is none; publicly a study hands out all of them."""
    try:
        return study._storage.get_trial(trial_id)
    except KeyError:
        return None


def count_trials(address: str, study: str) -> int:
    """Return how many trials a database has of a study, 0 if it lacks the study; an SQLAlchemyError if it is none.

    Optuna's own ways (5.0), ``get_all_study_summaries()`` too, read all trials.
    """
    count = "SELECT COUNT(*) FROM trials JOIN studies USING (study_id) WHERE study_name = :study"
    engine = sqlalchemy.create_engine(address)
    try:
        with engine.connect() as connection:
            return int(connection.execute(sqlalchemy.text(count), {"study": study}).scalar_one())
    finally:
        engine.dispose()


def close(study: Study) -> None:
    """Close the connections to a study's database, of which a storage (Optuna 5.0) has no public way to let go. They
    are opened again when the study is used."""
    backend = getattr(study._storage, "_backend", study._storage)  # RDBStorage comes in a cache
    if isinstance(backend, RDBStorage):
        backend.engine.dispose()


def handle(study: Study, trial_id: int) -> Trial:
    """Return the trial as ``ask()`` returned it, to be changed. ``ask()`` is the only public way to one."""
    return Trial(study, trial_id)


def add_trial(study: Study, trial: FrozenTrial) -> int:
    """Add a trial and return its id. ``study.add_trial()`` returns nothing, and another process may have added one."""
    return study._storage.create_new_trial(study._study_id, template_trial=trial)


def bring_up(study: Study, trial_id: int, trial: FrozenTrial) -> None:
    """Bring a trial of a study, which has not ended there, to where it is elsewhere."""
    for name, value in trial.system_attrs.items():
        set_system_attribute(study, trial_id, name, value)
    for name, value in trial.user_attrs.items():
        set_user_attribute(study, trial_id, name, value)
    for step, value in trial.intermediate_values.items():
        set_intermediate_value(study, trial_id, step, value)
    if trial.state.is_finished():
        study._storage.set_trial_state_values(trial_id, trial.state, trial.values)


def set_intermediate_value(study: Study, trial_id: int, step: int, value: float) -> None:
    """Record a report, in place of an earlier one of that step.

    ``trial.report()`` keeps the first value of a step, and reads the whole trial from the database before it writes.
    """
    study._storage.set_trial_intermediate_value(trial_id, step, value)


def set_user_attribute(study: Study, trial_id: int, key: str, value: Any) -> None:
    """Set a user attribute. For ``trial.set_user_attr()`` a :func:`handle` would read the trial from the database."""
    study._storage.set_trial_user_attr(trial_id, key, value)


def set_system_attribute(study: Study, trial_id: int, key: str, value: Any) -> None:
    """Set what a sampler keeps with a trial; samplers alone can do so publicly."""
    study._storage.set_trial_system_attr(trial_id, key, value)


def study_attributes(study: Study) -> Mapping[str, Any]:
    """Return what samplers keep in a study; Optuna 5 has no public name for it."""
    return study._storage.get_study_system_attrs(study._study_id)


def set_study_attribute(study: Study, key: str, value: Any) -> None:
    """Set what a sampler keeps in a study; samplers alone can do so publicly."""
    study._storage.set_study_system_attr(study._study_id, key, value)


def constraint_attributes(constraints: Mapping[str, float]) -> dict[str, float]:
    """Return the system attributes in which a trial has its constraints.

    The public ways, ``trial.set_constraint()`` and ``create_trial()``, do not serve a trial of :func:`study_of`.
    """
    return {f"constraints:{name}": value for name, value in constraints.items()}


def tell_end(study: Study, number: int, values: Sequence[float] | None) -> None:
    """Tell a study the values of a trial, None for one that failed. A sampler that has nothing left to propose stops
    the study then, which Optuna takes for an error outside ``optimize()``; here it changes nothing."""
    study._thread_local.in_optimize_loop = True
    study.tell(number, values, state=TrialState.FAIL if values is None else TrialState.COMPLETE)


def study_of(
    trials: Sequence[FrozenTrial], best: int | None, directions: Sequence[StudyDirection], sampler: BaseSampler
) -> Study:
    """Return a study in memory with these very trials. ``study.add_trial()`` copies and checks each, which would be
    most of the time of a proposal.

    Args:
        trials: In the order of their numbers, which are their ids, too; some may be left out. They may change
            afterwards.
        best: Place of the complete trial with the best value among them; None with several objectives.
        directions: What is better, in each objective.
        sampler: Of the study.
    """
    study = create_study(directions=list(directions), sampler=sampler)
    storage, own = study._storage, study._study_id
    assert isinstance(storage, InMemoryStorage)
    storage._studies[own].trials = list(trials)
    storage._studies[own].best_trial_id = None if best is None else id_of(trials[best])
    assert own == 0
    last = id_of(trials[-1]) if trials else -1
    if last == len(trials) - 1:
        for number in range(len(PLACES), len(trials)):
            PLACES[number] = (own, number)
        places = PLACES.copy()  # those beyond the last trial are never asked for
    else:
        places = {id_of(trial): (own, place) for place, trial in enumerate(trials)}
    storage._trial_id_to_study_id_and_number, storage._max_trial_id = places, last
    return study
