from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from ray import tune

from gaudi_tune.base import names
from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.define.budget import Budget
from gaudi_tune.private.optuna import study_attributes
from gaudi_tune.sweep.search.proposer import LIMITS
from gaudi_tune.sweep.search.sampler_view import OF_THE_CONFIGURATION, SamplerView, TrialLimits, ran_out_of_memory
from gaudi_tune.sweep.search.samplers import make_sampler
from tests.helpers.searchers import ERROR, end, proposal, report, searcher_in, seen, states, told, train, trials

LOST = Failure(FailureKind.LOST, "its node is gone")


@pytest.mark.parametrize(("budget", "seconds_each"), [(Budget(epochs=3), 1.5), (Budget(epochs=3, seconds=60), None)])
def test_the_sampler_knows_how_long_a_trial_takes_from_report_to_report(
    tmp_path: Path, budget: Budget, seconds_each: float | None
) -> None:
    proposer = searcher_in(tmp_path, budget=budget)
    proposal(proposer, "a")
    for count, score, second in ((1, math.nan, 1.0), (2, 0.1, 3.0), (3, 0.1, 9.0)):
        report(proposer, "a", {"score": score, names.SECOND: second, "epoch": count, "training_iteration": count})
    (known,) = SamplerView(proposer.study, proposer._objectives).study_for(optuna.samplers.RandomSampler()).trials
    assert known.user_attrs.get("seconds_each") == seconds_each


def test_the_sampler_sees_running_and_stopped_trials_with_their_best_so_far(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    for name in "abcd":
        proposer.propose(name)
    train(proposer, "a", 0.5, 0.9, 0.8)
    train(proposer, "b", 0.5)
    end(proposer, "c", {"score": 0.2, "epoch": 1})
    complete = TrialState.COMPLETE
    assert told(proposer) == [(complete, 0.9), (complete, 0.5), (complete, 0.2), (TrialState.RUNNING, None)]
    assert states(proposer) == [complete, TrialState.RUNNING, TrialState.PRUNED, TrialState.RUNNING]
    assert [trial.intermediate_values for trial in seen(proposer)] == [{1: 0.5, 2: 0.9, 3: 0.8}, {1: 0.5}, {1: 0.2}, {}]


def test_a_diverged_trial_counts_as_the_worst_and_one_that_lost_its_workers_not_at_all(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    for name in "abc":
        proposer.propose(name)
    train(proposer, "a", 0.1, 0.2, 0.3)
    report(proposer, "b", {"score": 0.9, "epoch": 1})
    end(proposer, "b", {"score": 0.9, "train_loss": math.nan, "epoch": 2})
    end(proposer, "c", failure=LOST)
    assert told(proposer)[1:] == [(TrialState.COMPLETE, pytest.approx(0.3)), (TrialState.FAIL, None)]
    assert seen(proposer)[1].intermediate_values == {}, "it got nowhere"
    assert trials(proposer)[1].user_attrs["failure"].startswith("diverged: train_loss is nan")


@pytest.mark.parametrize("text", ["a pity", "diverged: loss is nan", "out of memory on the device: too large"])
@pytest.mark.parametrize("kind", FailureKind)
def test_only_the_kind_of_a_failure_decides_what_the_sampler_sees(kind: FailureKind, text: str, tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    for name in "ab":
        proposer.propose(name)
    train(proposer, "a", 0.1, 0.2, 0.3)
    end(proposer, "b", failure=Failure(kind, text))
    counts_as_worst = kind in OF_THE_CONFIGURATION
    expected = (TrialState.COMPLETE, pytest.approx(0.3)) if counts_as_worst else (TrialState.FAIL, None)
    assert told(proposer)[1] == expected
    assert ran_out_of_memory(trials(proposer)[1]) is (kind == FailureKind.OUT_OF_MEMORY)
    assert trials(proposer)[1].user_attrs["failure"] == text


@pytest.mark.parametrize("reports", [0, 1])
def test_a_region_in_which_every_trial_raises_is_left(reports: int, tmp_path: Path) -> None:
    """What is best lies in it. Of 30 trials, 20 were lost there when such trials told the sampler nothing."""
    space = {"lr": tune.loguniform(1e-4, 1e-1), "dropout": tune.uniform(0.0, 1.0)}
    proposer, failed = searcher_in(tmp_path, space, baseline={}, sampler="gp"), 0
    for number in range(30):
        config, name = proposal(proposer, str(number)), str(number)
        if config["lr"] > 0.03:
            failed += 1
            train(proposer, name, *[config["lr"]] * reports)
            end(proposer, name, failure=ERROR)
        else:
            train(proposer, name, config["lr"])
    assert failed <= 10


def test_the_samplers_trials_are_as_if_made_anew(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path, sampler="random")
    kept = SamplerView(proposer.record.memory, proposer._objectives)
    random = optuna.samplers.RandomSampler()
    for number in range(70):  # more than there is room for at first
        name = str(number)
        proposer.propose(name)
        for epoch in range(1, 1 + number % 4):
            report(proposer, name, {"score": number % 7 / 7 + epoch / 100, "epoch": epoch})
            if number % 5 == 0:
                kept.study_for(random)
        if number % 3:
            last = {"score": math.nan, "epoch": 3} if number % 7 == 0 else None
            end(proposer, name, last, failure=ERROR if number % 11 == 0 else None)
    rebuilt = SamplerView(proposer.record.memory, proposer._objectives).study_for(random).get_trials()
    assert kept.study_for(random).get_trials() == rebuilt
    assert len({trial.values[0] for trial in rebuilt if trial.values}) > 10


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_a_sampler_sees_the_best_of_many_trials_some_others_and_the_running_ones(tmp_path: Path, sampler: str) -> None:
    proposer = searcher_in(tmp_path, sampler="random")
    for number in range(60):
        proposer.propose(str(number))
        report(proposer, str(number), {"score": number * 7 % 60 / 60, "epoch": 1})
        if number % 2:
            end(proposer, str(number), {"score": number * 7 % 60 / 60, "epoch": 3})
    for number in range(3):
        proposer.propose(f"has not reported {number}")
    view = SamplerView(proposer.record.memory, proposer._objectives)
    every = view.study_for(make_sampler(sampler, 0)).get_trials(deepcopy=False)
    model = view.study_for(make_sampler(sampler, 0), limits=TrialLimits(best=2, sampled=18))
    told = model.get_trials(deepcopy=False)
    assert [trial.number for trial in told[-3:]] == [60, 61, 62]
    assert all(trial is every[trial.number] for trial in told)
    values = sorted((trial.values[0] for trial in told[:-3]), reverse=True)
    ranked = sorted((trial.values[0] for trial in every[:60]), reverse=True)
    assert values[:2] == ranked[:2]
    assert len(values) == 20
    assert values != ranked[:20]
    assert model.best_trial.values == values[:1]
    assert set(model.ask(proposer._space.study_ranges).params) == set(every[0].params)
    end(proposer, "has not reported 0", failure=LOST)
    few = view.study_for(make_sampler(sampler, 0), limits=TrialLimits(best=30, sampled=30))
    assert few.ask().number == 63, "a space may go by the number, so where there are few, no trial is left out"


def test_samplers_that_learn_from_thousands_of_trials_are_told_of_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, type(make_sampler("gp", 0)), TrialLimits(best=6, sampled=6))
    made, seen = SamplerView.study_for, list[int]()

    def watched(*arguments: Any, **named: Any) -> optuna.Study:
        seen.append(len((study := made(*arguments, **named)).get_trials(deepcopy=False)))
        return study

    monkeypatch.setattr(SamplerView, "study_for", watched)
    proposer = searcher_in(tmp_path, sampler="gp")
    for number in range(30):
        proposer.propose(str(number))
        end(proposer, str(number), {"score": number * 7 % 30 / 30, "epoch": 3})
    assert max(seen) == 12
    kernels = study_attributes(proposer.record.memory)["gp:kernels"]
    assert kernels["trials"] > 24, "fitted again, although no more are told of"
