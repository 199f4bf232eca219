"""What this project uses of Optuna that Optuna does not promise to keep."""

from __future__ import annotations

import copy
from pathlib import Path

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import GridSampler, QMCSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from trainables.runtime.internals import optuna as internals

RANGE = FloatDistribution(0.0, 1.0)


@pytest.fixture(params=["memory", "database"])
def study(request: pytest.FixtureRequest, tmp_path: Path) -> optuna.Study:
    storage = None if request.param == "memory" else f"sqlite:///{tmp_path / 'study.db'}"
    if storage is not None:
        optuna.create_study(storage=storage, study_name="another").ask()  # ids go on where its trials end
    return optuna.create_study(storage=storage, study_name="own", sampler=RandomSampler(seed=0))


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


def test_a_storage_in_memory_takes_a_shared_trial_without_copying_what_is_in_it() -> None:
    plain = create_trial(value=0.5, params={"x": 0.5}, distributions={"x": RANGE})
    shared = internals.SharedTrial(
        number=7,
        trial_id=7,
        state=TrialState.COMPLETE,
        value=0.5,
        datetime_start=plain.datetime_start,
        datetime_complete=plain.datetime_complete,
        params=plain.params,
        distributions=plain.distributions,
        user_attrs={},
        system_attrs={},
        intermediate_values={},
    )
    study = optuna.create_study()
    study.add_trials([plain, shared])
    copied, taken = study.get_trials(deepcopy=False)
    assert copied.distributions["x"] is not RANGE  # else a SharedTrial is no longer needed
    assert taken.distributions["x"] is RANGE
    assert (taken.number, shared.number) == (1, 7)  # the trial itself is a copy: the storage numbers it
    assert isinstance(copy.deepcopy(shared), FrozenTrial)


def test_a_sampler_that_has_nothing_left_may_say_so() -> None:
    study = optuna.create_study(sampler=GridSampler({"x": [0.5]}))
    number = study.ask({"x": RANGE}).number
    with pytest.raises(RuntimeError, match="supposed to be invoked inside"):
        study.tell(number, 0.5)
    internals.tell_end(study, study.ask({"x": RANGE}).number, 0.7)
    internals.tell_end(study, study.ask({"x": RANGE}).number, None)
    assert [trial.state for trial in study.trials[1:]] == [TrialState.COMPLETE, TrialState.FAIL]
    assert study.trials[1].value == 0.7
