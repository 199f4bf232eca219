"""The search survives any space and any result: 22 proposals of each sampler, at the edges of both."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from optuna.samplers import RandomSampler
from ray import tune

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from tests.helpers.searchers import SCORE, end, proposal, searcher_in

LR = tune.loguniform(1e-4, 1e-1)


def _meeting_bounds(trial: Any) -> dict[str, Any]:
    depth = trial.suggest_int("depth", 1, 3)
    return {"lr": trial.suggest_float("lr", 1e-4, 1e-1, log=True), "heads": trial.suggest_int("heads", 1, depth)}


def _branch_of_one(trial: Any) -> dict[str, Any]:
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adamw"])
    lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    if optimizer == "sgd":
        return {"lr": lr, "momentum": trial.suggest_categorical("momentum", [0.9])}
    return {"lr": lr}


SPACES: dict[str, Any] = {
    "single values": {
        "lr": LR,
        "optimizer": tune.choice(["adamw"]),
        "layers": tune.randint(4, 5),
        "dropout": tune.uniform(0.1, 0.1),
    },
    "single values alone": {"optimizer": tune.choice(["adamw"]), "lr": tune.uniform(0.1, 0.1)},
    "meeting bounds": _meeting_bounds,
    "branch of one": _branch_of_one,
    "many ranges": {"lr": LR, **{f"x{number}": tune.uniform(0, 1) for number in range(99)}},
    "huge and tiny bounds": {
        "lr": tune.loguniform(1e-300, 1e300),
        "far": tune.uniform(-1e300, 1e300),
        "near": tune.uniform(0, 1e-300),
    },
    "steps, booleans and mixed types": {
        "lr": LR,
        "width": tune.qrandint(64, 512, 64),
        "flag": tune.choice([True, False]),
        "mixed": tune.choice([None, 2, 1.5, "one", True]),
    },
}
TRIALS = 22
"""More than a sampler draws at random at first, and three that run out of memory."""
RESULTS: dict[str, Callable[[int, Mapping[str, Any]], float]] = {
    "usual": lambda number, config: -abs(math.log10(config["lr"]) + 2),
    "equal": lambda number, config: 1.0,
    "huge": lambda number, config: (-1) ** number * 1e308,
    "one far ahead": lambda number, config: 1e12 if number == 12 else number / 100,
    "tiny differences": lambda number, config: 1.0 + number * 2**-52,
    "not finite now and then": lambda number, config: math.nan if number % 3 == 0 else float(number),
}


def _tune(folder: Path, space: Any, sampler: str, result: Callable[[int, Mapping[str, Any]], float]) -> None:
    proposer = searcher_in(folder, space, Budget(epochs=1), baseline={}, sampler=sampler)
    for number in range(TRIALS):
        config = proposal(proposer, f"t{number}")
        failure = Failure(FailureKind.OUT_OF_MEMORY, "out of memory") if number % 7 == 6 else None
        end(proposer, f"t{number}", None if failure else {"score": result(number, config)}, failure)


@pytest.fixture(autouse=True)
def _every_fault_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler that fails would be helped out: here its error is the test's."""

    def refuse(seed: int) -> None:
        raise AssertionError("the sampler has failed")

    monkeypatch.setattr("gaudi_tune.sweep.search.proposer.RandomSampler", refuse)


PAIRS = [
    *((space, sampler) for space in SPACES for sampler in ("gp", "tpe") if (space, sampler) != ("many ranges", "tpe")),
    *((space, sampler) for space in ("single values", "meeting bounds") for sampler in ("random", "qmc", "nsgaii")),
]


@pytest.mark.parametrize(("space", "sampler"), PAIRS)
def test_every_sampler_proposes_from_any_space(space: str, sampler: str, tmp_path: Path) -> None:
    _tune(tmp_path, SPACES[space], sampler, RESULTS["usual"])


@pytest.mark.parametrize("results", RESULTS)
@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_every_sampler_learns_from_any_results(sampler: str, results: str, tmp_path: Path) -> None:
    _tune(tmp_path, SPACES["single values"], sampler, RESULTS[results])


@pytest.mark.parametrize("sampler", ["gp", "tpe", "nsgaii"])
def test_several_objectives_in_a_space_with_a_single_value(sampler: str, tmp_path: Path) -> None:
    space, objectives = SPACES["single values"], [SCORE, Objective("cost", "min")]
    proposer = searcher_in(tmp_path, space, Budget(epochs=1), baseline={}, sampler=sampler, objectives=objectives)
    for number in range(TRIALS):
        config = proposal(proposer, f"t{number}")
        cost = math.inf if number % 5 == 4 else config["lr"]
        end(proposer, f"t{number}", {"score": -config["lr"], "cost": cost})


def test_a_failing_sampler_costs_one_proposal_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.undo()

    class Failing(RandomSampler):
        sample_relative: Any = itemgetter("a fault of a library")  # fails without a line of a user's

    monkeypatch.setattr("gaudi_tune.sweep.search.proposer.make_sampler", lambda search, seed: Failing(seed))
    proposer = searcher_in(tmp_path, {"lr": LR}, Budget(epochs=1), baseline={})
    with caplog.at_level(logging.ERROR):
        configs = [proposal(proposer, f"t{number}") for number in range(3)]
    assert len({config["lr"] for config in configs}) == 3
    assert [record.message.split(":")[0] for record in caplog.records] == ["gp failed"]
