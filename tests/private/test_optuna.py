"""What this project uses of Optuna that Optuna does not promise to keep."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from copy import copy
from datetime import datetime
from pathlib import Path

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import GridSampler, QMCSampler, RandomSampler
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from gaudi_tune.private import optuna as internals

RANGE = FloatDistribution(0.0, 1.0)


@pytest.fixture(params=["memory", "database"])
def study(request: pytest.FixtureRequest, tmp_path: Path) -> optuna.Study:
    storage = None if request.param == "memory" else f"sqlite:///{tmp_path / 'study.db'}"
    if storage is not None:
        optuna.create_study(storage=storage, study_name="another").ask()  # ids go on where its trials end
    return optuna.create_study(storage=storage, study_name="own", sampler=RandomSampler(seed=0))


@pytest.mark.parametrize("storage", [None, "sqlite:///{}/study.db"])
def test_a_study_that_was_closed_can_be_used_again(storage: str | None, tmp_path: Path) -> None:
    study = optuna.create_study(storage=storage and storage.format(tmp_path))
    study.ask()
    internals.close(study)
    opened = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    assert not any(file.startswith(str(tmp_path)) for file in opened)
    study.ask()
    assert len(study.trials) == 2


def test_trials_are_written_together_and_again_as_they_change(study: optuna.Study) -> None:
    known = optuna.create_study()
    for x in (0.5, 0.25):
        known.add_trial(create_trial(state=TrialState.RUNNING, params={"x": x}, distributions={"x": RANGE}))
    proposed = known.get_trials()
    ids = internals.write_trials(study, proposed, {}, {})
    assert [internals.id_of(trial) for trial in study.get_trials()] == [ids[0], ids[1]]
    trained = copy(proposed[1])
    trained.intermediate_values, trained.user_attrs = {3: 0.7, 4: 0.9}, {"why": "none"}
    trained.system_attrs = internals.constraint_attributes({"memory_gb": -1.0})
    assert internals.write_trials(study, [trained], ids, {1: proposed[1]}) == {}
    ended = copy(trained)
    ended.intermediate_values, ended.user_attrs = {3: 0.8, 5: 1.0}, {"other": 2}
    ended.state, ended.values, ended.datetime_complete = TrialState.COMPLETE, [0.8], datetime.now()
    internals.write_trials(study, [ended], ids, {1: trained})
    first, second = study.get_trials()
    assert (first.number, first.state, first.params) == (0, TrialState.RUNNING, {"x": 0.5})
    assert (second.number, second.state, second.value, second.params) == (1, TrialState.COMPLETE, 0.8, {"x": 0.25})
    assert second.intermediate_values == {3: 0.8, 5: 1.0}
    assert second.user_attrs == {"other": 2}
    assert internals.is_feasible(second)
    assert second.datetime_complete == ended.datetime_complete
    progress = {ids[0]: (TrialState.RUNNING, 0), ids[1]: (TrialState.COMPLETE, 2)}
    assert internals.progress_by_id(study) == progress
    internals.write_trials(study, [trained], ids, {1: ended})  # an ended one may go back
    assert study.get_trials()[1].intermediate_values == {3: 0.7, 4: 0.9}
    assert study.get_trials()[1].values is None
    assert study.get_trials()[1].state == TrialState.RUNNING


def test_a_damaged_database_is_told_from_a_locked_one(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    study = optuna.create_study(storage=f"sqlite:///{file}?timeout=0.1", study_name="one")
    study.ask()
    internals.close(study)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SQLAlchemyError) as locked:
            internals.progress_by_id(study)
        other.execute("ROLLBACK")
    assert not internals.is_damage(locked.value)
    for content in (b"", file.read_bytes()[:5000], b"no database" * 1000):
        file.write_bytes(content)
        with pytest.raises(SQLAlchemyError) as damaged:
            internals.progress_by_id(study)
        assert internals.is_damage(damaged.value)


def test_ids_and_numbers_differ_where_a_database_holds_two_studies(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    optuna.create_study(storage=storage, study_name="another").ask()
    study = optuna.create_study(storage=storage, study_name="own")
    study.ask()
    (trial,) = study.get_trials()
    assert trial.number == 0
    assert internals.id_of(trial) == 2


def test_a_samplers_notes_in_a_study_can_be_copied_to_another(study: optuna.Study) -> None:
    source = optuna.create_study(sampler=QMCSampler(seed=0, scramble=True))
    for _ in range(3):
        source.tell(source.ask({"x": RANGE}), 0.5)
    kept = internals.study_attributes(source)
    assert kept
    assert kept is not internals.study_attributes(source), "another thread may add to it meanwhile"
    for key, value in kept.items():
        internals.set_study_attribute(study, key, value)
    assert internals.study_attributes(study) == kept


def test_constraints_are_attributes_that_optuna_reads() -> None:
    """A trial with the better value that violates a constraint is not the best of its study."""
    study = optuna.create_study()
    for value, excess in ((0.0, 2.0), (1.0, -1.0)):
        attributes = internals.constraint_attributes({"memory_gb": excess, "latency": -1.0})
        study.add_trial(create_trial(value=value, system_attrs=attributes))
    assert [internals.is_feasible(trial) for trial in study.trials] == [False, True]
    assert study.best_trial.number == 1
    assert internals.is_feasible(create_trial(value=0.0, system_attrs=internals.constraint_attributes({})))


def test_a_study_of_given_trials_has_these_very_trials_and_goes_on_as_any_other() -> None:
    made = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    made.add_trials([create_trial(value=x, params={"x": x}, distributions={"x": RANGE}) for x in (0.5, 0.25, 0.75)])
    given = made.get_trials()
    study = internals.study_of(given, 1, [StudyDirection.MINIMIZE], optuna.samplers.TPESampler(seed=0))
    assert all(one is other for one, other in zip(study.get_trials(deepcopy=False), given, strict=True))
    assert study.best_trial.number == 1
    proposals = []
    for each in (made, study):
        trial = each.ask({"x": RANGE})
        proposals.append((trial.number, trial.params))
        each.tell(trial, 0.1)
        assert each.best_trial.number == 3
    assert proposals[0] == proposals[1]


def test_a_trial_of_a_study_in_memory_can_be_replaced() -> None:
    study = optuna.create_study()
    study.add_trial(create_trial(state=TrialState.RUNNING, params={"x": 0.5}, distributions={"x": RANGE}))
    before = study.get_trials(deepcopy=False)[0]
    after = copy(before)
    internals.replace_trial(study, after)
    assert study.get_trials(deepcopy=False)[0] is after


def test_a_sampler_that_has_nothing_left_may_say_so() -> None:
    study = optuna.create_study(sampler=GridSampler({"x": [0.5]}))
    number = study.ask({"x": RANGE}).number
    with pytest.raises(RuntimeError, match="supposed to be invoked inside"):
        study.tell(number, 0.5)
    internals.tell_end(study, study.ask({"x": RANGE}).number, [0.7])
    internals.tell_end(study, study.ask({"x": RANGE}).number, None)
    assert [trial.state for trial in study.trials[1:]] == [TrialState.COMPLETE, TrialState.FAIL]
    assert study.trials[1].value == 0.7
