"""Population-based training: what a trial that takes over another's weights has of its hyperparameters."""

from __future__ import annotations

import random
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from ray import tune

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.sweep.policies.schedulers.population import Population
from tests.helpers.scheduled import EPOCHS, SCORE


@pytest.fixture
def seeded() -> None:
    """pbt draws from Python's global generator: of 50 clones, one time in 80 none has some value that it may have."""
    random.seed(0)


def population_in(space: Any) -> Population:
    return Population(EPOCHS, [SCORE], SearchSpace(space))


@pytest.mark.usefixtures("seeded")
def test_pbt_changes_continuous_hyperparameters_and_keeps_them_inside_their_ranges() -> None:
    space = {"lr": tune.loguniform(1e-4, 1e-1), "dropout": tune.uniform(0, 0.3), "optimizer": tune.choice(["sgd"])}
    population = population_in(space)
    config = {"lr": 1e-1, "dropout": 0.3, "optimizer": "sgd", "seed": 4}
    found = [population.explore(config) for _ in range(50)]
    assert all(1e-4 <= c["lr"] <= 1e-1 and 0 <= c["dropout"] <= 0.3 for c in found)
    assert len({c["lr"] for c in found}) > 2
    assert {c["optimizer"] for c in found} == {"sgd"}


@pytest.mark.usefixtures("seeded")
def test_pbt_moves_along_the_steps_of_a_range() -> None:
    population = population_in({"dropout": FloatDistribution(0.0, 0.3, step=0.1)})
    config = {"dropout": 0.3, "seed": 4}
    found = [population.explore(config)["dropout"] for _ in range(50)]
    assert set(found) <= {0.0, 0.1, 0.2, 0.3}
    assert {0.2, 0.3} < set(found)


@pytest.mark.usefixtures("seeded")
def test_pbt_counts_the_steps_of_a_range_from_its_lower_end() -> None:
    population = population_in({"dropout": FloatDistribution(0.5, 0.8, step=0.1)})
    config = {"dropout": 0.7, "seed": 4}
    found = [population.explore(config)["dropout"] for _ in range(1000)]
    assert sorted(set(found)) == [0.5, 0.6, 0.7, 0.8]
    assert abs(found.count(0.6) - found.count(0.8)) < 100, "both are beside it, and drawn as often"


@pytest.mark.usefixtures("seeded")
def test_pbt_moves_to_the_next_larger_or_smaller_choice_in_whatever_order_they_are() -> None:
    population = population_in({"decay": tune.choice([0.3, 0.1, 0.2])})
    config = {"decay": 0.1, "seed": 4}
    found = [population.explore(config)["decay"] for _ in range(500)]
    assert 0 < found.count(0.3) < 100, "only where it is drawn again"


@pytest.mark.usefixtures("seeded")
def test_pbt_changes_what_the_branch_of_the_donor_has_in_its_ranges_there() -> None:
    def branching(trial: optuna.Trial) -> dict[str, float]:
        trial.suggest_categorical("batch_size", [8, 16])
        decay = trial.suggest_categorical("weight_decay", [0.0, 1e-4, 1e-3])
        if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
            trial.suggest_float("sgd.lr", 1e-2, 1e-1, log=True)
            trial.suggest_float("momentum", 0.5, 0.9)
        else:
            trial.suggest_float("adamw.lr", 1e-4, 1e-3, log=True)
        return {"head_decay": 2 * decay}

    population = population_in(branching)
    donor = {"batch_size": 8, "weight_decay": 1e-4, "optimizer": "adamw", "lr": 1e-3, "head_decay": 2e-4, "seed": 4}
    clones = [population.explore(donor) for _ in range(50)]
    assert all(set(clone) == set(donor) and 1e-4 <= clone["lr"] <= 1e-3 for clone in clones)
    assert {(clone["optimizer"], clone["batch_size"]) for clone in clones} == {("adamw", 8)}
    assert len({clone["lr"] for clone in clones}) > 5
    assert {clone["weight_decay"] for clone in clones} == {0.0, 1e-4, 1e-3}
    assert all(clone["head_decay"] == 2 * clone["weight_decay"] for clone in clones)


def test_pbt_gives_each_clone_a_seed_of_its_own() -> None:
    population = population_in({"lr": tune.loguniform(1e-4, 1e-1)})
    donor = {"lr": 1e-2, "seed": 4}
    seeds = [population.explore(donor)["seed"] for _ in range(20)]
    assert len({4, *seeds}) == 21
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert donor["seed"] == 4


@pytest.mark.parametrize(
    "space", [lambda trial: None, {"optimizer": tune.choice(["sgd"])}, {"decay": tune.choice([0.1, "none"])}]
)
def test_pbt_says_what_it_cannot_change(space: Any) -> None:
    with pytest.raises(SweepError, match="--scheduler pbt: "):
        Population.check(SearchSpace(space))
