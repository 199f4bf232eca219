"""What this project uses of Optuna that Optuna does not promise to keep."""

from __future__ import annotations

import os
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


def test_trials_are_counted_by_the_name_of_their_study(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'study.db'}"
    for name, trials in {"one": 3, "other": 2, "none": 0}.items():
        study = optuna.create_study(storage=address, study_name=name)
        for _ in range(trials):
            study.ask()
        assert internals.count_trials(address, name) == len(study.trials) == trials
    assert internals.count_trials(address, "missing") == 0
    with pytest.raises(SQLAlchemyError):
        internals.count_trials(f"sqlite:///{tmp_path / 'empty.db'}", "one")


@pytest.mark.parametrize("storage", [None, "sqlite:///{}/study.db"])
def test_a_study_that_was_closed_can_be_used_again(storage: str | None, tmp_path: Path) -> None:
    study = optuna.create_study(storage=storage and storage.format(tmp_path))
    study.ask()
    internals.close(study)
    opened = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    assert not any(file.startswith(str(tmp_path)) for file in opened)
    study.ask()
    assert len(study.trials) == 2


def test_a_trial_that_is_added_has_an_id_by_which_it_is_changed(study: optuna.Study) -> None:
    added = internals.add_trial(
        study, create_trial(state=TrialState.RUNNING, params={"x": 0.5}, distributions={"x": RANGE})
    )
    (trial,) = study.get_trials()
    assert internals.id_of(trial) == added
    internals.set_intermediate_value(study, added, 3, 0.7)
    internals.set_intermediate_value(study, added, 3, 0.8)  # report() would keep 0.7
    internals.set_user_attribute(study, added, "failure", "why")
    handle = internals.handle(study, added)
    handle.set_constraint("memory_gb", -1.0)
    study.tell(handle, 0.8)
    (trial,) = study.get_trials()
    assert (trial.number, trial.state, trial.value, trial.params) == (0, TrialState.COMPLETE, 0.8, {"x": 0.5})
    assert trial.intermediate_values == {3: 0.8}
    assert trial.user_attrs == {"failure": "why"}
    assert trial.constraints == {"memory_gb": -1.0}


def test_ids_and_numbers_differ_where_a_database_holds_two_studies(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    optuna.create_study(storage=storage, study_name="another").ask()
    study = optuna.create_study(storage=storage, study_name="own")
    study.ask()
    (trial,) = study.get_trials()
    assert trial.number == 0
    assert internals.id_of(trial) == 2


def test_what_a_sampler_keeps_in_a_study_can_be_copied_to_another(study: optuna.Study) -> None:
    source = optuna.create_study(sampler=QMCSampler(seed=0, scramble=True))
    for _ in range(3):
        source.tell(source.ask({"x": RANGE}), 0.5)
    kept = internals.study_attributes(source)
    assert kept
    for key, value in kept.items():
        internals.set_study_attribute(study, key, value)
    assert internals.study_attributes(study) == kept


def test_constraints_are_attributes_of_these_names() -> None:
    attributes = internals.constraint_attributes({"memory_gb": 2.0, "latency": -1.0})
    trial = create_trial(state=TrialState.RUNNING, system_attrs=attributes)
    assert trial.constraints == {"memory_gb": 2.0, "latency": -1.0}
    assert create_trial(value=0.0, constraints=trial.constraints).system_attrs == attributes


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


def test_a_study_in_memory_replaces_the_object_of_a_trial_that_changes() -> None:
    study = optuna.create_study()
    study.add_trial(create_trial(state=TrialState.RUNNING, params={"x": 0.5}, distributions={"x": RANGE}))
    seen = [study.get_trials(deepcopy=False)[0]]
    assert study.get_trials(deepcopy=False)[0] is seen[0]
    for change in (
        lambda: internals.set_intermediate_value(study, 0, 1, 0.5),
        lambda: internals.set_user_attribute(study, 0, "key", 1),
        lambda: study.tell(internals.handle(study, 0), 0.5),
    ):
        change()
        seen.append(study.get_trials(deepcopy=False)[0])
    assert len({id(trial) for trial in seen}) == 4


def test_a_sampler_that_has_nothing_left_may_say_so() -> None:
    study = optuna.create_study(sampler=GridSampler({"x": [0.5]}))
    number = study.ask({"x": RANGE}).number
    with pytest.raises(RuntimeError, match="supposed to be invoked inside"):
        study.tell(number, 0.5)
    internals.tell_end(study, study.ask({"x": RANGE}).number, [0.7])
    internals.tell_end(study, study.ask({"x": RANGE}).number, None)
    assert [trial.state for trial in study.trials[1:]] == [TrialState.COMPLETE, TrialState.FAIL]
    assert study.trials[1].value == 0.7
