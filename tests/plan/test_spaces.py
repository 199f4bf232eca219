"""Search spaces that do not fit the train loop, the baseline or --set: each a clear error, and what does fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from ray import tune

from experiments.tune_bert import EXPERIMENT
from gaudi_tune import Experiment, SweepError, SweepOptions
from gaudi_tune.define.options import SchedulerName
from gaudi_tune.define.ranges import middle
from gaudi_tune.devices.find import find_devices
from gaudi_tune.plan.planner import make_plan, make_proposer
from gaudi_tune.training.session import report
from search_spaces.bert import SAMPLE_BASELINE
from tests.helpers.loops import QuadraticConfig
from tests.helpers.planned_bert import plan_for, with_space
from tests.helpers.quadratic import QUADRATIC

SPACE = {
    **{name: ranges[0] for name, ranges in EXPERIMENT.search_space.fix({"optimizer": "sgd"}).ranges.items()},
    "optimizer": CategoricalDistribution(["sgd", "adamw"]),
}
"""The branch of SGD as ranges by name, to be changed."""


def test_batches_of_a_space_that_is_a_function_are_checked(storage: Path) -> None:
    def asked(trial: optuna.Trial) -> dict[str, Any]:
        trial.suggest_categorical("batch_size", [8, 16, 33])
        return {name: value for name, value in EXPERIMENT.baseline.items() if name != "batch_size"}

    options = SweepOptions(storage=storage, device="cpu", settings=("micro_batch=32",))
    with pytest.raises(SweepError, match=r"2 equal parts .* got batch_size=33.*; the search space has 8, 16, 33"):
        make_plan(with_space(asked), options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": [0.1, 0.2]}, r"lr: \[0.1, 0.2\] is no range; give tune.uniform"),
        ({"lr": tune.choice([0.001, "b"])}, "in the search space lr must be a valid number, but it may be 'b'"),
        ({"optimizer": tune.choice(["sgd", "lion"])}, "optimizer must be .* or 'lars', but it may be 'lion'"),
        ({"batch_size": tune.uniform(8, 32)}, "batch_size must be a valid integer, .* but it may be "),
        ({"epochs": tune.randint(1, 9)}, "has keys that options give, such as --epochs; leave them out: epochs"),
        ({"lr": 0.5}, "the baseline differs from the constants of the search space in: lr"),
    ],
)
def test_values_of_a_space_that_the_train_loop_cannot_take_are_named(
    changes: dict[str, Any], message: str, storage: Path
) -> None:
    with pytest.raises(SweepError, match=message):
        make_plan(with_space({**SPACE, **changes}), SweepOptions(storage=storage))


def test_every_wrong_key_of_the_space_is_named_at_once(storage: Path) -> None:
    space = {name: domain for name, domain in SPACE.items() if name not in ("dropout", "momentum")}
    wrong = with_space({**space, "learning_rate": tune.uniform(0, 1), "beta": 1, "lr": tune.uniform(1, 2)})
    with pytest.raises(SweepError) as caught:
        make_plan(wrong, SweepOptions(storage=storage))
    said = str(caught.value)
    assert "keys that the train loop does not know: beta, learning_rate;" in said
    assert "the search space lacks keys that the train loop needs: dropout;" in said
    assert "the baseline has keys that the search space lacks: dropout, momentum;" in said
    assert "the baseline lies outside the search space in: lr=" in said


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(QuadraticConfig):
    optimizer: str
    beta: float = 0.9


@dataclass(frozen=True, kw_only=True)
class BranchingConfig(OptimizerConfig):
    momentum: float = 0.0


@dataclass(frozen=True, kw_only=True)
class AlwaysMomentumConfig(OptimizerConfig):
    momentum: float


@dataclass(frozen=True, kw_only=True)
class DecayConfig(BranchingConfig):
    decay: float


def branching(trial: optuna.Trial) -> dict[str, Any]:
    """A space in which sgd has a momentum, and adamw, which seed 0 draws first, a beta."""
    trial.suggest_float("x", -1.0, 1.0)
    if trial.suggest_categorical("optimizer", ["adamw", "sgd"]) == "sgd":
        trial.suggest_float("momentum", 0.5, 0.99)
        return {}
    return {"beta": 0.99}


BRANCHING = replace(
    QUADRATIC, config_class=BranchingConfig, space=branching, baseline={"x": 0.9, "optimizer": "sgd", "momentum": 0.9}
)


@pytest.mark.parametrize("baseline", [BRANCHING.baseline, {"x": 0.9, "optimizer": "adamw"}])
def test_a_space_may_ask_for_what_depends_on_what_it_was_given(storage: Path, baseline: dict[str, Any]) -> None:
    plan = make_plan(replace(BRANCHING, baseline=baseline), SweepOptions(storage=storage, name="x"))
    assert not {"x", "optimizer", "momentum", "beta"} & set(plan.settings)


def test_a_tried_configuration_has_the_hyperparameters_of_its_branch() -> None:
    wanted = {"x": "0.5", "optimizer": "sgd", "momentum": "0.9"}
    assert BRANCHING.read_config({"epochs": 4}, wanted) == {"x": 0.5, "optimizer": "sgd", "momentum": 0.9}
    for changes, message in (
        ({"optimizer": "adamw"}, "momentum: the space asks for none with these other values; leave it empty"),
        ({"x": "2"}, "x=2.0 is not in its range, -1 to 1; give a value inside, such as 0"),
        ({"optimizer": ""}, "optimizer: every trial needs a value; give one in its range, one of adamw, sgd"),
    ):
        with pytest.raises(SweepError, match=message):
            BRANCHING.read_config({"epochs": 4}, {**wanted, **changes})


def test_a_hyperparameter_of_a_function_can_be_fixed(storage: Path) -> None:
    for key in ("momentum", "beta"):
        plan = make_plan(BRANCHING, SweepOptions(storage=storage, name="x", settings=(f"{key}=0.7",)))
        assert plan.settings[key] == 0.7
        assert key not in plan.experiment.search_space.names | set(plan.experiment.baseline)
    plan = make_plan(BRANCHING, SweepOptions(storage=storage, name="x", settings=("optimizer=adamw",)))
    assert plan.experiment.search_space.names == {"x", "beta"}  # the branch of adamw alone
    assert plan.experiment.baseline == {"x": 0.9}
    adam = replace(BRANCHING, baseline={"x": 0.9, "optimizer": "adamw"})
    plan = make_plan(adam, SweepOptions(storage=storage, name="x", settings=("optimizer=sgd",)))
    assert plan.experiment.baseline == {
        "x": 0.9,
        "momentum": middle(plan.experiment.search_space.ranges["momentum"][0]),
    }
    with pytest.raises(SweepError, match=r"--set x=0\.5: nothing is left to search"):
        make_plan(QUADRATIC, SweepOptions(storage=storage, name="x", settings=("x=0.5",)))


@pytest.mark.parametrize(
    ("choices", "given", "value"),
    [
        ([None, 0.1], "None", None),
        ([None, "linear"], "None", None),
        ([False, "auto"], "False", False),
        ([False, "auto"], "false", False),
        ([1, 2, "all"], "1", 1),
        ([1, 2, "all"], "all", "all"),
    ],
)
def test_a_set_value_has_the_type_of_its_choice(choices: list[Any], given: str, value: Any, storage: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        report({"score": config["x"]})

    space = {"x": tune.uniform(0, 1), "mode": tune.choice(choices)}
    experiment = Experiment(train_loop=loop, space=space, metric="score", mode="max")
    plan = make_plan(experiment, SweepOptions(storage=storage, name="x", settings=(f"mode={given}",)))
    assert plan.settings["mode"] == value
    assert type(plan.settings["mode"]) is type(value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"baseline": {"x": 0.9, "optimizer": "sgd"}},
            "asks for 'momentum', which has no value here .only x, optimizer have one.; add it",
        ),
        (
            {"baseline": {"x": 0.9, "optimizer": "adamw", "momentum": 0.9}},
            "the baseline has keys that the search space lacks: momentum",
        ),
        (
            {"baseline": {"x": 1.5, "optimizer": "sgd", "momentum": 0.1}},
            r"the baseline lies outside the search space in: momentum=0\.1 \(0\.5 to 0\.99\), x=1\.5 \(-1 to 1\)\.",
        ),
        ({"baseline": {"x": 0.5, "optimizer": "lion"}}, r"the baseline lies outside the search space in: optimizer"),
        (
            {"config_class": AlwaysMomentumConfig},
            "the search space does not always have keys that the train loop needs .*: momentum",
        ),
        (
            {"config_class": DecayConfig},
            "the search space lacks keys that the train loop needs: decay; .*baseline lacks .* needs: decay",
        ),
    ],
    ids=["lacks a value", "has one too many", "outside", "no such choice", "not always", "never"],
)
def test_misfits_of_a_branching_space_are_named(changes: dict[str, Any], message: str, storage: Path) -> None:
    with pytest.raises(SweepError, match=message):
        make_plan(replace(BRANCHING, **changes), SweepOptions(storage=storage, name="x"))


@pytest.mark.parametrize("scheduler", ["asha", "pbt"])
def test_a_fixed_optimizer_leaves_its_branch_of_berts_space(
    scheduler: SchedulerName, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eight = replace(find_devices("cpu", None), nodes=(8,))
    monkeypatch.setattr("gaudi_tune.plan.find_devices.find_devices", lambda *_: eight)
    plan = plan_for(storage, settings=("optimizer=sgd",), workers_per_trial=8, scheduler=scheduler)
    space, baseline = plan.experiment.search_space, plan.experiment.baseline
    names = {"lr", "batch_size", "weight_decay", "schedule", "warmup", "dropout", "momentum"}
    assert space.names == space.always == names
    assert space.outside(baseline) == []
    assert baseline["lr"] == pytest.approx(1e-2)  # the middle of the branch, as that of the baseline is outside
    assert plan.settings["lr_for_batch"] == SAMPLE_BASELINE["batch_size"]
    proposer = make_proposer(plan)
    proposals = [proposer.propose(str(number)) for number in range(5)]
    assert proposals[0] == {**baseline, "seed": proposals[0]["seed"]}
    with pytest.raises(SweepError, match=r"must be a multiple of the 8 workers .* got 12; the search space has 12"):
        plan_for(storage, settings=("batch_size=12",), workers_per_trial=8)
