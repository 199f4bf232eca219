from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from optuna import Study
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, TrialState
from ray import tune

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.define.objective import Mode, Objective
from tests.helpers.searchers import BUDGET, end, proposal, report, searcher_in, train, trials

TOO_LARGE = Failure(FailureKind.OUT_OF_MEMORY, "Traceback ...\nit is too large")
"""Its text says nothing that the proposer may go by."""


def test_a_configuration_too_large_for_memory_is_passed_over_before_any_value(tmp_path: Path) -> None:
    """One has reported, which says that it fits, and then failed."""
    proposer = searcher_in(tmp_path)
    for name in "abc":
        proposal(proposer, name)
    report(proposer, "a", {"score": 0.5, "epoch": 1, "training_iteration": 1})
    end(proposer, "a", failure=Failure(FailureKind.LOOP_ERROR, "ValueError: out of memory on the device"))
    for name in "bc":
        end(proposer, name, failure=TOO_LARGE)
    assert all(proposal(proposer, name) for name in "defgh")


def test_while_none_has_fitted_nobody_knows_what_does(tmp_path: Path) -> None:
    proposer = searcher_in(tmp_path)
    for name in "ab":
        proposal(proposer, name)
        end(proposer, name, failure=TOO_LARGE)
    assert proposal(proposer, "c")


LARGE: dict[str, tuple[dict[str, Any], int]] = {
    "choices": ({"size": tune.choice([32, 64, 128, 256, 512, 1024])}, 128),
    "whole numbers": ({"size": tune.randint(1, 1025)}, 512),
}
"""Spaces of which half fits, and the largest size that does; the larger the better."""


@pytest.mark.parametrize("kind", LARGE)
def test_a_configuration_too_large_for_memory_is_proposed_no_more(kind: str, tmp_path: Path) -> None:
    sizes, largest = LARGE[kind]
    space, out_of_memory = {**sizes, "lr": tune.loguniform(1e-4, 1.0)}, []
    baseline = {"size": 64, "lr": 1e-2}
    proposer = searcher_in(tmp_path, space, baseline=baseline, sampler="tpe")
    for number in range(50):
        config, trial_id = proposal(proposer, str(number)), str(number)
        if config["size"] > largest:
            end(proposer, trial_id, failure=TOO_LARGE)
            out_of_memory.append(number)
        else:
            train(proposer, trial_id, *[config["size"] / largest - abs(math.log10(config["lr"]) + 2)] * BUDGET.total)
    assert len([number for number in out_of_memory if number >= 20]) <= 1
    attributes = trials(proposer)[out_of_memory[0]].user_attrs
    assert (attributes["failure"], attributes["failure_kind"]) == ("it is too large", "out of memory")


class Listening(RandomSampler):
    """Proposes at random, and notes the values that it is given of its proposals."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.given: list[float] = []

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        super().after_trial(study, trial, state, values)
        self.given += values or ()


@pytest.mark.parametrize("mode", ["max", "min"])
def test_a_configuration_too_large_for_memory_is_as_bad_as_the_worst(mode: Mode, tmp_path: Path) -> None:
    sampler, objectives = Listening(0), [Objective("score", mode)]
    proposer = searcher_in(
        tmp_path, {"size": tune.randint(1, 1025)}, baseline={}, sampler=sampler, objectives=objectives
    )
    for number in range(12):
        config, name = proposal(proposer, str(number)), str(number)
        if config["size"] > 512:
            end(proposer, name, failure=TOO_LARGE)
        else:
            train(proposer, name, *[config["size"] / 512] * BUDGET.total)
    values = [trial.value for trial in trials(proposer) if trial.value is not None]
    sampler.given.clear()
    for name in "abcdef":
        proposal(proposer, name)
    assert sampler.given and set(sampler.given) == {min(values) if mode == "max" else max(values)}
