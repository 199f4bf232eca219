from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from ray import tune

from gaudi_tune.base import names
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.ranges import WithPrior
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.private.optuna import constraint_attributes
from gaudi_tune.sweep.search.guesses import GUESSED
from gaudi_tune.sweep.search.proposer import Proposer
from gaudi_tune.sweep.search.sampler_view import SamplerView
from gaudi_tune.sweep.search.samplers import SAMPLERS, make_sampler
from tests.helpers.searchers import (
    BASELINE,
    BUDGET,
    ERROR,
    SCORE,
    end,
    keep,
    proposal,
    report,
    restored,
    searcher_in,
    states,
    train,
    trials,
)


def test_the_baseline_comes_first_and_constants_are_kept(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    first, second = proposal(proposer, "a"), proposal(proposer, "b")
    assert {name: first[name] for name in BASELINE} == BASELINE
    assert first["layers"] == second["layers"] == 2
    assert 1e-4 <= second["lr"] <= 1e-1
    assert first["seed"] != second["seed"]


def test_the_same_seed_proposes_the_same_another_seed_another(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    one, same, other = (searcher_in(f, seed=s) for f, s in zip(folders, (1, 1, 2), strict=True))
    proposals = [[s.propose(t) for t in "xyz"] for s in (one, same, other)]
    assert proposals[0] == proposals[1]
    assert proposals[0] != proposals[2]


@pytest.mark.parametrize("sampler", ["gp", "tpe", "qmc"])
def test_a_prior_follows_the_baseline_and_others_are_near_it(sampler: str, tmp_path: Path) -> None:
    space = {"lr": WithPrior(tune.loguniform(1e-4, 1e-1), prior=0.02), "momentum": tune.uniform(0.0, 1.0)}
    proposer = searcher_in(tmp_path, space, baseline={"lr": 1e-3, "momentum": 0.5}, sampler=sampler)
    proposals = [proposal(proposer, str(number)) for number in range(12)]
    assert [config["lr"] for config in proposals[:2]] == [1e-3, 0.02]
    guessed = [trial.params["lr"] for trial in trials(proposer) if GUESSED in trial.user_attrs]
    assert len(guessed) == 2, "no more before they are compared"
    assert all(abs(math.log(lr / 0.02)) < 0.3 * math.log(1e3) for lr in guessed)
    assert len({config["momentum"] for config in proposals}) > 10, "the sampler's"


class Looks(optuna.samplers.RandomSampler):
    """Notes the learning rates that it is told a value of."""

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.told = [t.params["lr"] for t in study.get_trials(deepcopy=False) if t.state == TrialState.COMPLETE]


@pytest.mark.parametrize("good", [True, False])
def test_a_prior_that_was_wrong_is_given_up_and_the_sampler_learns_from_it(good: bool) -> None:
    space, sampler = {"lr": WithPrior(tune.uniform(0.0, 1.0), prior=0.0)}, Looks(seed=0)
    proposer = Proposer(
        SearchSpace(space), objectives=[SCORE], baseline={}, sampler=sampler, seed=0,
    )  # fmt: skip
    for number in range(30):
        lr = proposal(proposer, str(number))["lr"]
        train(proposer, str(number), *[1 - lr if good else lr] * 3)
    guessed = [trial.params["lr"] for trial in trials(proposer) if GUESSED in trial.user_attrs]
    assert guessed[0] == 0.0 and max(guessed) < 0.5
    assert len(guessed) > 5 if good else len(guessed) == 2
    assert set(guessed[:-1]) <= set(sampler.told)


def conditional(trial: optuna.Trial) -> dict[str, Any]:
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adamw"])
    if optimizer == "sgd":
        trial.suggest_float("momentum", 0.5, 0.9)
    return {"layers": 4, "number": trial.number}


def test_a_space_may_be_a_function_of_the_trial(tmp_path: Path) -> None:
    baseline = {"optimizer": "sgd", "momentum": 0.7}
    proposer = searcher_in(tmp_path, conditional, baseline=baseline)
    first = proposal(proposer, "t0")
    assert (first["optimizer"], first["momentum"], first["layers"]) == ("sgd", 0.7, 4)
    for number in range(1, 15):
        train(proposer, f"t{number - 1}", 0.1, 0.2, number / 20)
        config = proposal(proposer, f"t{number}")
        assert ("momentum" in config) == (config["optimizer"] == "sgd")
        assert config["number"] == number
    assert set(states(proposer)[:-1]) == {TrialState.COMPLETE}


@pytest.mark.parametrize(
    ("result", "error", "state"),
    [
        ({"score": 0.5, "epoch": 3}, False, TrialState.COMPLETE),
        ({"score": 0.5, "epoch": 2}, False, TrialState.PRUNED),
        ({"score": 0.5, "training_iteration": 3}, False, TrialState.COMPLETE),
        ({"score": math.nan, "epoch": 3}, False, TrialState.FAIL),
        ({"score": 0.5, "epoch": 3, "train_loss": math.inf}, False, TrialState.FAIL),
        ({"loss": 1.0, "epoch": 3}, False, TrialState.FAIL),
        ({"score": 0.5, "epoch": 3}, True, TrialState.FAIL),
        (None, True, TrialState.FAIL),
        (None, False, TrialState.FAIL),
    ],
)
def test_the_study_is_told_how_a_trial_ended(
    result: dict[str, Any] | None, error: bool, state: TrialState, tmp_path: Path
) -> None:
    proposer = searcher_in(tmp_path)
    proposer.propose("a")
    end(proposer, "a", result, ERROR if error else None)
    assert states(proposer) == [state]


def test_the_record_has_every_report_and_the_values_it_was_given(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    for name in "abc":
        proposer.propose(name)
    train(proposer, "a", 0.1, 0.5, 0.4)
    train(proposer, "b", 0.2, 0.1)
    end(proposer, "b", {"score": 0.1, "epoch": 2})
    train(proposer, "c", 0.3)
    assert [trial.intermediate_values for trial in trials(proposer)] == [
        {1: 0.1, 2: 0.5, 3: 0.4},
        {1: 0.2, 2: 0.1},
        {1: 0.3},
    ]
    assert states(proposer) == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING]
    assert [trial.value for trial in trials(proposer)[:2]] == [0.5, 0.1]  # the best of one with its full budget


def test_a_budget_in_seconds_is_recorded_by_seconds_and_a_trial_is_complete_at_its_last_epoch_too(
    tmp_path: Path,
) -> None:
    proposer = searcher_in(tmp_path, budget=Budget(epochs=3, seconds=60))
    for name, result in {
        "a": {"score": 0.2, names.SECOND: 20.7, "epoch": 3},
        "b": {"score": 0.1, names.SECOND: 61.2, "epoch": 2},
        "c": {"score": 0.1, names.SECOND: 20.1, "epoch": 2},
    }.items():
        proposal(proposer, name)
        end(proposer, name, result)
    assert [trial.intermediate_values for trial in trials(proposer)] == [{20: 0.2}, {61: 0.1}, {20: 0.1}]
    assert states(proposer) == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_goes_on_from_the_record_as_if_nothing_had_happened(sampler: str, tmp_path: Path) -> None:
    space = {"x": tune.uniform(0, 1), "y": tune.uniform(0, 1)}
    proposals = []
    for interrupted in (False, True):
        same: dict[str, Any] = {"space": space, "sampler": sampler, "baseline": {"x": 0.5, "y": 0.5}}
        proposer, made = searcher_in(tmp_path, **same), []
        for number in range(13):
            made.append(proposal(proposer, str(number)))
            train(proposer, str(number), made[-1]["x"] / 2, made[-1]["x"])
            if number % 2:
                end(proposer, str(number), {"score": made[-1]["y"], "epoch": 3})
            if interrupted and number % 5 == 2:
                keep(proposer, tmp_path / "state")
                proposer = restored(tmp_path / "state", **same)
        proposals.append(made)
    assert proposals[0] == proposals[1]
    assert len({config["x"] for config in proposals[0]}) > 8


def test_wanted_configurations_are_proposed_once_also_after_an_interruption(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    proposer.propose("a")
    first, second = ({"lr": lr, "optimizer": "sgd"} for lr in (2e-3, 3e-3))
    proposer.request(first)
    proposer.request(second)
    keep(proposer, tmp_path / "state")
    assert proposal(proposer, "b")["lr"] == 2e-3
    again = restored(tmp_path / "state")
    assert [proposal(again, name)["lr"] for name in "cd"] == [2e-3, 3e-3]
    assert again.requested_configs == []
    assert proposal(again, "e")["lr"] not in (2e-3, 3e-3)


def test_what_was_proposed_after_the_log_was_written_is_proposed_anew(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    proposer.propose("a")
    keep(proposer, tmp_path / "state")
    lost = [proposal(proposer, "b"), proposal(proposer, "c")]
    train(proposer, "b", 0.4, 0.5, 0.6)
    again = restored(tmp_path / "state")
    assert len(trials(again)) == 1
    assert [proposal(again, "d"), proposal(again, "e")] == lost, "from the same study the same proposals follow"
    assert states(again) == [TrialState.RUNNING] * 3


def test_a_trial_that_nobody_trains_any_more_has_failed(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    proposer.propose("a")
    (tmp_path / "state").write_text(json.dumps(proposer.save()))
    proposer.propose("b")
    again = searcher_in(tmp_path)
    again.restore_study(proposer.record.snapshot(everything=True))
    again.restore(json.loads((tmp_path / "state").read_text()))
    assert states(again) == [TrialState.RUNNING, TrialState.FAIL]


def test_the_log_counts_and_not_what_came_later(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    for name in "abc":
        proposer.propose(name)
    train(proposer, "c", 0.5)
    keep(proposer, tmp_path / "state")
    train(proposer, "a", 0.1, 0.2, 0.3)
    end(proposer, "b", failure=ERROR)
    train(proposer, "c", 0.5, 0.6)
    again = restored(tmp_path / "state")
    assert [trial.intermediate_values for trial in trials(again)] == [{}, {}, {1: 0.5}]
    assert states(again) == [TrialState.RUNNING] * 3
    train(again, "a", 0.1, 0.2, 0.9)
    end(again, "b", {"score": 0.4, "epoch": 2})
    train(again, "c", 0.55, 0.6, 0.7)
    assert states(again) == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.COMPLETE]
    assert [trial.value for trial in trials(again)] == [0.9, 0.4, 0.7]
    assert trials(again)[2].intermediate_values == {1: 0.55, 2: 0.6, 3: 0.7}


def test_results_of_a_trial_that_it_never_proposed_are_no_error(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    train(proposer, "unknown", 0.1, 0.2, 0.3)
    assert states(proposer) == []


def test_soft_constraints_reach_the_sampler_and_the_record(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    for name in "ab":
        proposer.propose(name)
        report(proposer, name, {"score": 0.5, "epoch": 1, "constraint/memory_gb": 3.0})
    end(proposer, "b", {"score": 0.5, "epoch": 3, "constraint/memory_gb": -1.0})
    model = SamplerView(proposer.study, proposer._objectives).study_for(make_sampler("tpe", 0))
    for trial, value in zip([*model.trials, trials(proposer)[1]], (3.0, -1.0, -1.0), strict=True):
        assert trial.system_attrs.items() >= constraint_attributes({"memory_gb": value}).items()
    assert isinstance(proposer.propose("c"), dict)


def test_the_best_of_several_reports_in_an_epoch_is_recorded(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    proposal(proposer, "a")
    for count, (epoch, score) in enumerate(((0.5, 0.1), (1.0, 0.9), (1.5, 0.3), (2.0, 0.4), (3.0, 0.5)), start=1):
        report(proposer, "a", {"score": score, "epoch": epoch, "training_iteration": count})
    end(proposer, "a")
    (trial,) = trials(proposer)
    assert trial.intermediate_values == {0: 0.1, 1: 0.9, 2: 0.4, 3: 0.5}
    assert trial.value == 0.9


def test_all_trials_can_have_the_same_seed(tmp_path: Path) -> None:
    own, same = searcher_in(tmp_path), searcher_in(tmp_path, trial_seed=7)
    assert len({proposal(own, str(n))["seed"] for n in range(3)}) == 3
    proposed = [proposal(same, str(n)) for n in range(3)]
    assert {config["seed"] for config in proposed} == {7}
    assert len({config["lr"] for config in proposed}) == 3


BOTH = [SCORE, Objective("seconds", "min")]


def train_both(proposer: Proposer, trial_id: str, *reports: tuple[float, float]) -> None:
    for epoch, (score, seconds) in enumerate(reports, start=1):
        result = {"score": score, "seconds": seconds, "epoch": epoch}
        if epoch == BUDGET.total:
            end(proposer, trial_id, result)
        else:
            report(proposer, trial_id, result)


def test_with_several_objectives_the_sampler_sees_the_point_of_each_trial(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path, objectives=BOTH)
    for name in "abcd":
        proposal(proposer, name)
    train_both(proposer, "a", (0.5, 3.0), (0.7, 2.0), (0.6, 1.0))
    train_both(proposer, "b", (0.4, 5.0))
    end(proposer, "b")
    train_both(proposer, "c", (0.2, 4.0))
    end(proposer, "c", {"score": 0.3, "seconds": math.inf, "epoch": 2})
    report(proposer, "d", {"score": 0.9, "epoch": 1})  # without one of the objectives
    assert proposer.study.directions == [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE]
    assert states(proposer) == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.RUNNING]
    assert [trial.values for trial in trials(proposer)] == [[0.7, 2.0], None, None, None]
    assert trials(proposer)[1].user_attrs["point"] == [0.4, 5.0]
    assert trials(proposer)[2].user_attrs["failure"] == "diverged: seconds is inf after epoch 2"
    model = SamplerView(proposer.study, proposer._objectives).study_for(optuna.samplers.RandomSampler())
    # The one that diverged counts as the worst in each.
    assert [trial.values for trial in model.get_trials(deepcopy=False)] == [[0.7, 2.0], [0.4, 5.0], [0.4, 5.0], None]


def test_the_better_other_objective_decides_between_equal_values(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path, objectives=BOTH)
    proposal(proposer, "a")
    for epoch, seconds in ((1, 3.0), (2, 2.0), (3, 4.0)):
        report(proposer, "a", {"score": 0.5, "seconds": seconds, "epoch": epoch})
    assert trials(proposer)[0].user_attrs["point"] == [0.5, 2.0]


@pytest.mark.parametrize("sampler", [*SAMPLERS, "NSGAIIISampler"])
def test_every_usual_sampler_takes_several_objectives_and_goes_on_from_the_record(sampler: str, tmp_path: Path) -> None:
    proposals: list[list[dict[str, Any]]] = []
    for interrupted in (False, True):
        same: dict[str, Any] = {"objectives": BOTH, "sampler": sampler}
        proposer = searcher_in(tmp_path, **same)
        proposals.append([])
        for number in range(13):
            if interrupted and number == 11:
                keep(proposer, tmp_path / "state")
                proposer = restored(tmp_path / "state", **same)
            config = proposal(proposer, str(number))
            proposals[-1].append(config)
            score = -abs(math.log10(config["lr"]) + 2)
            train_both(proposer, str(number), *[(score, 1 / config["lr"])] * BUDGET.total)
    assert proposals[0] == proposals[1]
    assert len({config["lr"] for config in proposals[0]}) > 8
