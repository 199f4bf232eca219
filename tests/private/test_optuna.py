"""What this project uses of Optuna that Optuna does not promise to keep."""

from __future__ import annotations

from copy import copy

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import GridSampler, QMCSampler
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from gaudi_tune.private import optuna as internals

RANGE = FloatDistribution(0.0, 1.0)


def test_a_samplers_notes_in_a_study_can_be_copied_to_another() -> None:
    source = optuna.create_study(sampler=QMCSampler(seed=0, scramble=True))
    for _ in range(3):
        source.tell(source.ask({"x": RANGE}), 0.5)
    kept = internals.study_attributes(source)
    assert kept
    assert kept is not internals.study_attributes(source), "another thread may add to it meanwhile"
    study = optuna.create_study()
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
