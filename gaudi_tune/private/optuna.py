"""Optuna: reads and writes a study below the public API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna import Study, create_study
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState


def replace_trial(study: Study, trial: FrozenTrial) -> None:
    """Put ``trial`` in the place of the trial with its number, of the only study of a storage in memory."""
    storage = study._storage
    assert isinstance(storage, InMemoryStorage)
    storage._set_trial(trial.number, trial)  # ids are numbers


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
    storage._studies[study_id].best_trial_id = None if best is None else trials[best].number
    assert study_id == 0
    places = {trial.number: (study_id, place) for place, trial in enumerate(trials)}
    storage._trial_id_to_study_id_and_number = places
    storage._max_trial_id = trials[-1].number if trials else -1
    return study
