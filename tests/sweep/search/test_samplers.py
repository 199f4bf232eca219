from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from gaudi_tune import Experiment
from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.plan.planner import make_plan, make_proposer
from gaudi_tune.private.optuna import study_attributes
from gaudi_tune.sweep.search.samplers import SAMPLERS, make_sampler, try_sampler
from search_spaces.bert import BASELINE as PUBLISHED
from search_spaces.bert import space as space_of_bert
from tests.helpers.quadratic import QUADRATIC
from tests.helpers.searchers import ERROR, end, report, searcher_in, states, trials


def test_samplers_go_by_short_name_or_class_name() -> None:
    for short, class_name in SAMPLERS.items():
        assert type(make_sampler(short, 0)).__name__ == class_name
    assert type(make_sampler("BruteForceSampler", 0)).__name__ == "BruteForceSampler"


def raising() -> None:
    raise KeyError("x")


def test_samplers_take_arguments_but_for_the_seed() -> None:
    grid = make_sampler("GridSampler(search_space={'x': [1, 2]})", 0)
    study = optuna.create_study(sampler=grid)
    assert {study.ask({"x": optuna.distributions.IntDistribution(1, 9)}).params["x"] for _ in range(2)} == {1, 2}
    assert isinstance(make_sampler("tpe(n_startup_trials=3, multivariate=True)", 0), optuna.samplers.TPESampler)
    for given, why in {
        "tpe(seed=3)": "the seed comes from --seed",
        "tpe(3)": "arguments need their names",
        "tpe(n_startup_trials=": "as in Python",
        "tpe(n_startup_trials=lots)": "malformed node",
        "tpe(startup=3)": "unexpected keyword argument",
        "no_such_module.mine": "cannot be imported",
        "json.dumps": r"cannot be created \(.*correct its arguments",
        "pathlib.Path": "it returned a PosixPath",
        "sys.exit": "cannot be created .SystemExit",
        f"{__name__}.raising": r"cannot be created .KeyError: 'x' .*test_samplers\.py, line \d+",
    }.items():
        with pytest.raises(SweepError, match=rf"--search {re.escape(given)}: .*{why}"):
            make_sampler(given, 0)


class Remembering(optuna.samplers.RandomSampler):
    """As many of OptunaHub's do, it keeps what it learns in itself, with the trial, and in the study."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.heard: list[tuple[int, TrialState, Any]] = []

    def after_trial(self, study: Any, trial: Any, state: TrialState, values: Any) -> None:
        self.heard.append((trial.number, state, values))
        study._storage.set_trial_system_attr(trial._trial_id, "mine", len(self.heard))
        study._storage.set_study_system_attr(study._study_id, "heard", len(self.heard))


def test_a_sampler_of_the_users_own_hears_of_the_end_of_each_trial_and_what_it_keeps_is_kept(tmp_path: Path) -> None:
    usual = SweepOptions(storage=tmp_path, device="cpu", search="tpe(n_startup_trials=3)")
    assert make_plan(QUADRATIC, usual).objects.sampler is None
    sampler = make_plan(QUADRATIC, replace(usual, search=f"{__name__}.Remembering")).objects.sampler
    assert isinstance(sampler, Remembering)
    proposer = searcher_in(tmp_path, sampler=sampler)
    for name in "abc":
        proposer.propose(name)
    end(proposer, "a", {"score": 0.5, "epoch": 3})
    report(proposer, "b", {"score": 0.3, "epoch": 1})
    end(proposer, "b")
    end(proposer, "c", failure=ERROR)
    assert sampler.heard == [
        (0, TrialState.COMPLETE, [0.5]), (1, TrialState.COMPLETE, [0.3]), (2, TrialState.FAIL, None),
    ]  # fmt: skip
    assert [trial.system_attrs["mine"] for trial in trials(proposer)] == [1, 2, 3]
    assert study_attributes(proposer.study)["heard"] == 3
    assert states(proposer) == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL]


@pytest.mark.parametrize("name", ["tpo", "BaseSampler", "GridSampler"])
def test_an_unknown_sampler_is_an_error_that_names_those_there_are(name: str) -> None:
    with pytest.raises(SweepError, match=f"--search {name}: "):
        make_sampler(name, 0)


def test_each_branch_of_berts_space_is_drawn_together_with_a_learning_rate_of_its_own() -> None:
    study, bert = optuna.create_study(sampler=make_sampler("gp", seed=0)), SearchSpace(space_of_bert)
    bert.enqueue(study, PUBLISHED)
    for number in range(15):
        config, at = bert.propose(study)
        low, high = (1e-4, 3e-2) if config["optimizer"] == "sgd" else (5e-6, 1e-4)
        assert low <= config["lr"] <= high
        assert ("momentum" in config) == (config["optimizer"] == "sgd")
        study.tell(at, float(number))
    together = study.sampler.infer_relative_search_space(study, study.get_trials()[0])
    assert {"optimizer", "sgd.lr", "sgd.weight_decay", "momentum", "adamw.lr", "adamw.weight_decay"} <= set(together)


def test_a_sampler_that_cannot_be_copied_is_an_error_of_the_plan(tmp_path: Path) -> None:
    sampler = Remembering()
    sampler.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(SweepError, match=r"this sampler cannot search this space \(TypeError: cannot pickle"):
        try_sampler(make_plan(QUADRATIC, SweepOptions(storage=tmp_path, device="cpu")), sampler)


@pytest.mark.parametrize("search", ["BruteForceSampler", "GridSampler(search_space={'x': [1, 2]})"])
def test_a_sampler_that_knows_all_points_of_a_small_space_is_taken(search: str, tmp_path: Path) -> None:
    experiment = Experiment(
        train_loop=print, space={"x": optuna.distributions.CategoricalDistribution([1, 2])}, metric="loss"
    )
    plan = make_plan(experiment, SweepOptions(storage=tmp_path, device="cpu", search=search, num_samples=4))
    proposer = make_proposer(plan)
    assert {proposer.propose(str(number))["x"] for number in range(4)} == {1, 2}
