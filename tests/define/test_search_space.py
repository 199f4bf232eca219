"""Search spaces: what may be written, and that every way of writing one works like the others."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from ray import tune

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.ranges import WithPrior, middle
from gaudi_tune.define.search_space import DRAWS, SearchSpace
from gaudi_tune.define.space_checks import Draw


def of_a_function(trial: optuna.Trial) -> dict[str, Any]:
    trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    trial.suggest_int("width", 8, 32, step=8)
    trial.suggest_categorical("optimizer", ["sgd", "adamw"])
    return {"layers": 2}


OF_TUNE = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "width": tune.qrandint(8, 32, 8),
    "optimizer": tune.choice(["sgd", "adamw"]),
    "layers": 2,
}
OF_OPTUNA = {
    "lr": FloatDistribution(1e-4, 1e-1, log=True),
    "width": IntDistribution(8, 32, step=8),
    "optimizer": CategoricalDistribution(["sgd", "adamw"]),
    "layers": 2,
}
EVERY_WAY = pytest.mark.parametrize(
    "definition", [OF_TUNE, OF_OPTUNA, of_a_function], ids=["tune", "optuna", "function"]
)


@EVERY_WAY
def test_every_way_of_writing_a_space_gives_the_same(definition: Any) -> None:
    space, reference = SearchSpace(definition), SearchSpace(OF_OPTUNA)
    assert space.names == space.always == {"lr", "width", "optimizer", "layers"}
    assert space.constants == {"layers": 2}
    assert space.describe() == reference.describe()
    assert set(space.values("width")) == {8, 16, 24, 32}
    assert space.values("optimizer") == ["sgd", "adamw"]
    studies = [optuna.create_study(sampler=optuna.samplers.TPESampler(seed=3)) for _ in range(2)]
    assert space.propose(studies[0]) == reference.propose(studies[1])


@EVERY_WAY
def test_fixed_hyperparameters_are_not_asked_for(definition: Any) -> None:
    space = SearchSpace(definition).fix({"optimizer": "sgd", "layers": 3})
    assert space.names == {"lr", "width"}
    assert space.fix({"width": 8}).names == {"lr"}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    config, number = pickle.loads(pickle.dumps(space)).propose(study)
    assert (set(config), number, set(study.trials[0].params)) == ({"lr", "width"}, 0, {"lr", "width"})


@EVERY_WAY
def test_values_outside_the_space_are_named(definition: Any) -> None:
    space, inside = SearchSpace(definition), {"lr": 0.01, "width": 16, "optimizer": "sgd"}
    assert space.always_searched == set(inside)
    assert space.outside(inside) == []
    wrong = {"lr": 0.2, "width": 17, "optimizer": "lion"}
    assert sorted(space.outside(wrong)) == ["lr", "optimizer", "width"]
    assert space.draw_with(inside).config == {**inside, "layers": 2}


def with_priors(trial: Any) -> dict[str, Any]:
    trial.suggest_float("lr", 1e-4, 1e-1, log=True, prior=1e-2)
    trial.suggest_int("width", 8, 32, step=8)
    trial.suggest_categorical("optimizer", ["sgd", "adamw"], prior="adamw")
    return {"layers": 2}


@pytest.mark.parametrize(
    "definition",
    [
        {**there, "lr": WithPrior(there["lr"], prior=1e-2), "optimizer": WithPrior(there["optimizer"], prior="adamw")}
        for there in (OF_TUNE, OF_OPTUNA)
    ]
    + [with_priors],
    ids=["tune", "optuna", "function"],
)
def test_every_way_of_writing_a_space_has_priors(definition: Any) -> None:
    space = SearchSpace(definition)
    assert space.priors == {"lr": 1e-2, "optimizer": "adamw"}
    assert space.study_ranges == {name: OF_OPTUNA[name] for name in ("lr", "width", "optimizer")}
    assert space.in_words()["lr"] == "0.0001 to 0.1, logarithmic, prior 0.01"
    assert SearchSpace({"n": tune.randint(1, 1234568)}).in_words() == {"n": "1 to 1234567"}
    assert space.ranges == SearchSpace(OF_OPTUNA).ranges
    assert space.describe() != SearchSpace(OF_OPTUNA).describe()
    assert space.fix({"lr": 1e-3}).priors == {"optimizer": "adamw"}
    assert space.multiply(["lr"], 2).priors["lr"] == 2e-2
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    assert set(space.propose(study)[0]) == {"lr", "width", "optimizer", "layers"}


def test_each_branch_may_have_a_prior_of_its_own() -> None:
    def space(trial: Any) -> None:
        if trial.suggest_categorical("optimizer", ["sgd", "adamw"], prior="sgd") == "sgd":
            trial.suggest_float("sgd.lr", 1e-3, 1.0, log=True, prior=0.1)
        else:
            trial.suggest_float("adamw.lr", 1e-5, 1e-3, log=True, prior=1e-4)

    assert SearchSpace(space).priors == {"optimizer": "sgd", "sgd.lr": 0.1, "adamw.lr": 1e-4}
    words = SearchSpace(space).in_words()["lr"]
    assert "0.001 to 1, logarithmic, prior 0.1 (sgd)" in words
    assert "1e-05 to 0.001, logarithmic, prior 0.0001 (adamw)" in words


def test_a_prior_outside_its_range_is_an_error() -> None:
    with pytest.raises(SweepError, match=r"lr: its prior, 0.1, is not in its range, 0.0001 to 0.01, .* such as 0.001"):
        SearchSpace({"lr": WithPrior(tune.loguniform(1e-4, 1e-2), prior=0.1)})
    with pytest.raises(SweepError, match=r"lr: its prior, 2, is not in its range, 0 to 1; .* such as 0.5"):
        _ = SearchSpace(lambda trial: {"lr": trial.suggest_float("lr", 0, 1, prior=2)}).priors  # type: ignore[call-arg]


def test_a_range_may_depend_on_what_was_drawn_before() -> None:
    def nested(trial: optuna.Trial) -> None:
        low = trial.suggest_float("low", 0.0, 0.5)
        trial.suggest_float("high", low, 1.0)

    space = SearchSpace(nested)
    assert len(space.ranges["high"]) == 50
    assert space.in_words()["high"].endswith(" to 1, or another range in other trials")
    assert space.outside({"low": 0.4, "high": 0.5}) == []
    assert space.outside({"low": 0.4, "high": 0.3}) == ["high"]


def of_two_branches(trial: optuna.Trial) -> dict[str, Any]:
    trial.suggest_categorical("batch_size", [8, 16])
    if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
        trial.suggest_float("sgd.lr", 1e-3, 1e-1, log=True)
        return {"momentum": trial.suggest_categorical("momentum", [0.8, 0.9])}
    trial.suggest_float("adamw.lr", 1e-5, 1e-4, log=True)
    return {}


def test_a_hyperparameter_may_have_another_name_in_the_study_in_each_branch() -> None:
    space = SearchSpace(of_two_branches)
    assert space.names == {"batch_size", "optimizer", "lr", "momentum"}
    assert space.always_searched == {"batch_size", "optimizer", "lr"}
    assert sorted(range_.high for range_ in space.ranges["lr"]) == [1e-4, 1e-1]  # type: ignore[attr-defined]
    usual = {"batch_size": 8, "optimizer": "sgd", "lr": 0.01, "momentum": 0.9}
    assert space.draw_with(usual).config == usual
    assert space.outside(usual) == []
    assert space.outside({**usual, "optimizer": "adamw"}) == ["lr"]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    space.enqueue(study, usual)
    assert space.propose(study) == (usual, 0)
    asked = {"batch_size": 8, "optimizer": "sgd", "sgd.lr": 0.01, "momentum": 0.9}
    assert study.trials[0].params == asked
    assert space.draw_with(asked).config == usual  # as a resumed sweep reads it from the study
    fixed = space.fix({"lr": 0.5, "optimizer": "adamw"})
    assert (fixed.names, fixed.draw_with({"batch_size": 16}).config) == ({"batch_size"}, {"batch_size": 16})
    assert SearchSpace(of_two_branches).multiply(["lr"], 10).ranges["lr"][0] != space.ranges["lr"][0]


@pytest.mark.parametrize(
    ("range_", "expected"),
    [
        (FloatDistribution(1e-4, 1e-2, log=True), 1e-3),
        (FloatDistribution(0.0, 0.3), 0.15),
        (FloatDistribution(0.0, 0.4, step=0.1), 0.2),
        (IntDistribution(8, 32, step=8), 24),
        (IntDistribution(1, 100, log=True), 10),
        (CategoricalDistribution([0.0, 1e-4]), 0.0),
    ],
)
def test_the_middle_of_a_range_lies_in_it(range_: BaseDistribution, expected: float) -> None:
    found = middle(range_)
    assert found == pytest.approx(expected)
    assert SearchSpace({"x": range_}).outside({"x": found}) == []


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ([0.1, "a"], r"lr: \[0.1, 'a'\] is no range; give tune.choice\(\[0.1, 'a'\]\) to search among these values"),
        (
            (0.1, 0.2),
            r"lr: \(0.1, 0.2\) is no range; give tune.uniform\(0.1, 0.2\) or tune.loguniform\(0.1, 0.2\) to search "
            r"between them, or tune.choice\(\[0.1, 0.2\]\) to search among these values",
        ),
        ({"a": 1}, r"lr: \{'a': 1\} is neither a range nor a constant; a space is flat: .*, such as lr_a"),
        (lambda: 0.1, "lr: the function <lambda> is neither a range nor a constant; give a range"),
        (tune.grid_search([1, 2]), r"lr: a grid is not a range; give tune.choice\(\[1, 2\]\), .* as many --num-samp"),
        (tune.sample_from(lambda spec: 0.1), "lr: tune.sample_from draws without a range"),
        (tune.randn(), "lr: Float from -inf to inf cannot be searched by Optuna .*_Normal.*; give a range"),
        (tune.uniform(1.0, 0.1), r"lr: Float from 1.0 to 0.1 cannot be searched .*low=1.0, high=0.1.*; give a range"),
        (tune.choice([]), "lr: the choices cannot be searched by Optuna .*one or more"),
        (tune.choice([1, True]), "lr: choices must differ, but got 1 twice"),
        (tune.choice([None, "None"]), "lr: choices must differ, but got 'None' twice"),
        (tune.choice([0.1, float("nan")]), "lr: choices must be finite numbers, but got nan; leave it out"),
        (tune.randint(1.5, 4), "lr: bounds of whole numbers must be whole, but got 1.5"),
        (tune.qloguniform(1e-4, 1e-1, 1e-4), "lr: a logarithmic range has no steps in Optuna; give tune.loguniform"),
        (FloatDistribution(0.0, float("inf")), "lr: bounds must be finite numbers, at most 1e300, but got 0 to inf"),
        (CategoricalDistribution(["a", cast(Any, [1])]), r"lr: choices must be numbers.* but got \[\[1\]\]"),
        (tune.choice(["a", {"b": 1}]), r"lr: choices must be numbers.* but got \[\{'b': 1\}\]"),
    ],
    ids=lambda value: "" if isinstance(value, str) else repr(value)[:30],
)
@pytest.mark.filterwarnings("error:Choices for a categorical distribution")
def test_wrong_ranges_are_refused_with_name_and_fix(entry: Any, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        SearchSpace({"lr": entry, "momentum": 0.9})


@pytest.mark.parametrize("name", ["l r", "class", "1st", "\ufb01lter"])
def test_a_name_that_no_variable_can_have_is_refused(name: str) -> None:
    with pytest.raises(SweepError, match=f"{name}: a name must be that of a Python variable, .* letters, digits and _"):
        SearchSpace({name: tune.uniform(0, 1)})
    with pytest.raises(SweepError, match=f"{name}: a name must be that of a Python variable, .* letters, digits and _"):
        _ = SearchSpace(lambda trial: {name: trial.suggest_float("lr", 0, 1)}).names


@pytest.mark.parametrize(
    "space",
    [
        {"model.lr": tune.uniform(0.1, 0.2)},
        {"model.lr": tune.uniform(0.1, 0.2), "lr": 5.0},
        {"model.lr": tune.uniform(0.1, 0.2), "ema.lr": tune.uniform(0.3, 0.4)},
        {"lr": tune.uniform(0.1, 0.2), "model.lr": 3},
    ],
)
def test_a_dotted_name_in_a_mapping_is_refused_with_what_to_write(space: dict[str, Any]) -> None:
    message = r"model\.lr: a name of a hyperparameter has no dot: .* such as model_lr, .* read config\['model_lr'\]"
    with pytest.raises(SweepError, match=message):
        SearchSpace(space)


def test_a_function_cannot_return_another_value_than_it_was_given() -> None:
    def halved(trial: optuna.Trial) -> dict[str, Any]:
        return {"lr": trial.suggest_float("model.lr", 0.1, 0.2) / 2}

    message = (
        r"returned lr=0\.\d+, but it asked the trial for lr, which is 0\.\d+; return the other value under another"
    )
    with pytest.raises(SweepError, match=message):
        _ = SearchSpace(halved).names
    with pytest.raises(SweepError, match=message):
        _ = SearchSpace(halved).fix({"lr": 0.15}).names
    space = SearchSpace(lambda trial: {"lr": trial.suggest_float("model.lr", 0.1, 0.2)})
    assert space.names == {"lr"}


def test_a_function_is_checked_once_and_not_in_each_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Draw] = []
    monkeypatch.setattr("gaudi_tune.define.search_space.check_draw", checked.append)
    space = SearchSpace(of_a_function)
    assert space.names == space.always and len(space.random_draws(300)) == 300
    assert len(checked) == DRAWS


def test_all_wrong_entries_are_named_at_once() -> None:
    spaces: Any = {1: tune.uniform(0, 1), "lr": [1], "wd": [2]}
    with pytest.raises(SweepError, match=r"1 is no name; give a text.*lr: \[1\] is no range.*; wd: \[2\] is no range"):
        SearchSpace(spaces)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda trial: trial.suggest_float("lr", 0, 1, log=True),
            r"failed when it had asked for 'lr': ValueError: .*, line \d+\)",
        ),
        (lambda trial: 1 / 0, r"before it asked for anything: ZeroDivisionError: division by zero \(.*, line \d+\)"),
        (lambda trial: sys.exit(0), r"before it asked for anything: SystemExit: 0 \(.*, line \d+\); fix it there"),
        (lambda trial: {"x": [1]}, r"must return numbers, texts, bools or None, but returned x=\[1\]; make it"),
        (lambda trial: [trial.suggest_float("lr", 0, 1)], "must return a mapping or None, but returned"),
        (
            lambda trial: {"lr": tune.uniform(0, 1)},
            r"returned a range for lr; ask the trial instead, .*suggest_float\('lr'",
        ),
        (
            lambda trial: {"sum": trial.suggest_float("lr", 0.0, 1.0) + trial.suggest_float("lr", 0.0, 2.0)},
            "asks for 'lr' in two ranges; give one of them another name",
        ),
        (
            lambda trial: {"sum": trial.suggest_float("encoder.rate", 0, 1) + trial.suggest_float("head.rate", 0, 1)},
            r"head\.rate and encoder\.rate in one trial, and both are the same",
        ),
        (
            lambda trial: trial.suggest_uniform("lr", 0, 1),
            r"suggest_uniform\(\) is an old name of Optuna's; call suggest_float\(\)",
        ),
    ],
)
def test_a_function_that_is_wrong_is_refused(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(SweepError, match=message):
        _ = SearchSpace(function).names


def test_values_of_numpy_are_those_of_python() -> None:
    def function(trial: Any) -> dict[str, Any]:
        trial.suggest_categorical("lr", np.array([0.01, 0.1]), prior=np.float64(0.1))
        trial.suggest_categorical("width", list(np.arange(1, 3)))
        trial.suggest_categorical("bias", np.array([True, False]))
        return {"layers": np.int64(3), "name": np.str_("a"), "norm": np.bool_(True)}

    mapping = {
        "lr": WithPrior(tune.choice(np.array([0.01, 0.1])), prior=np.float64(0.1)),
        "width": tune.choice(list(np.arange(1, 3))),
        "bias": tune.choice(np.array([True, False])),
        **{"layers": np.int64(3), "name": np.str_("a"), "norm": np.bool_(True)},
    }
    for definition in (function, mapping):
        space = SearchSpace(definition)
        values = {name: space.values(name) for name in ("lr", "width", "bias", "layers", "name", "norm")}
        assert values == {
            **{"lr": [0.01, 0.1], "width": [1, 2], "bias": [True, False]},
            **{"layers": [3], "name": ["a"], "norm": [True]},
        }
        types = [float, int, bool, int, str, bool]
        assert [{type(value) for value in there} for there in values.values()] == [{kind} for kind in types]
        assert type(space.priors["lr"]) is float


@EVERY_WAY
def test_bounds_and_choices_can_be_multiplied(definition: Any) -> None:
    space = SearchSpace(definition).multiply(["width"], 4)
    assert space.ranges["width"] == [IntDistribution(32, 128, step=32)]
    assert space.ranges["lr"] == [FloatDistribution(1e-4, 1e-1, log=True)]
    assert space.fix({"lr": 0.1}).ranges["width"] == [IntDistribution(32, 128, step=32)]
    choices = SearchSpace({"batch_size": CategoricalDistribution([8, 16])}).multiply(["batch_size"], 2)
    assert choices.values("batch_size") == [16, 32]


def test_a_logarithmic_range_of_whole_numbers_cannot_count_for_each_worker() -> None:
    space = SearchSpace({"lr": tune.uniform(0, 1), "batch_size": tune.lograndint(8, 65)})
    with pytest.raises(SweepError, match=r"batch_size counts for each worker, .* divide among 2; give it choices"):
        space.multiply(["batch_size"], 2).propose(optuna.create_study())


def test_several_ranges_under_one_name_are_no_range_of_the_study() -> None:
    def space(trial: optuna.Trial) -> None:
        wide = trial.suggest_categorical("wide", [True, False])
        trial.suggest_float("x", 0.0, 2.0 if wide else 1.0)

    assert len(SearchSpace(space).ranges["x"]) == 2
    assert SearchSpace(space).study_ranges == {"wide": CategoricalDistribution([True, False])}
