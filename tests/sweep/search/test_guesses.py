"""Guesses: near what is known to be good, and the fewer the more proposals there were."""

from __future__ import annotations

import math

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.search.guesses import GUESSED, KEEP_PROBABILITY, N_EARLY, SPREAD, guess, guesses_pay_off

RANGES = {
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "dropout": FloatDistribution(0.0, 0.4, step=0.1),
    "layers": IntDistribution(1, 8),
    "optimizer": CategoricalDistribution(["sgd", "adamw"]),
}
PRIOR = {"lr": 1e-3, "dropout": 0.0, "layers": 8, "optimizer": "adamw"}


def guesses(number: int, many: int = 400) -> list[dict[str, object]]:
    return [found for seed in range(many) if (found := guess(1, number, seed, [PRIOR], RANGES))]


def test_the_first_guesses_are_what_is_known() -> None:
    assert guess(0, 0, 7, [PRIOR, {"lr": 1e-2}], RANGES) == PRIOR
    assert guess(1, 9, 7, [PRIOR, {"lr": 1e-2}], RANGES) == {"lr": 1e-2}


def test_guesses_lie_near_in_the_scale_of_the_range() -> None:
    found = guesses(1)
    off = [math.log10(float(str(g["lr"])) / 1e-3) for g in found]
    assert np.std(off) == pytest.approx(4 * SPREAD, rel=0.2), "of four decades"
    assert abs(np.mean(off)) < 0.1
    assert {type(g["layers"]) for g in found} == {int}
    assert {g["layers"] for g in found} >= {6, 7, 8}
    assert max(map(float, (str(g["dropout"]) for g in found))) <= 0.4
    assert {round(10 * float(str(g["dropout"])), 6) % 1 for g in found} == {0.0}
    share = np.mean([g["optimizer"] == "adamw" for g in found])
    assert share == pytest.approx(KEEP_PROBABILITY + (1 - KEEP_PROBABILITY) / 2, abs=0.07)


def test_they_come_less_often_the_more_proposals_there_were() -> None:
    assert len(guesses(N_EARLY)) == pytest.approx(200, abs=40)
    assert len(guesses(10 * N_EARLY)) == pytest.approx(20, abs=12)


def trial(number: int, value: float | None, *, guessed: bool = False, failed: bool = False) -> FrozenTrial:
    return create_trial(
        state=TrialState.FAIL if failed else TrialState.PRUNED,
        intermediate_values={} if value is None else {1: value, 2: value - 1},
        user_attrs={GUESSED: True} if guessed else {},
    )


@pytest.mark.parametrize("objective", [Objective("score", "max"), Objective("score", "min")])
def test_wrong_values_are_not_guessed_at(objective: Objective) -> None:
    sign = 1 if objective.mode == "max" else -1

    def goes_on(guesses: list[float | None]) -> bool:
        study = optuna.create_study(direction=objective.direction)
        for number in range(9):
            study.add_trial(trial(number, 10.0 * sign * number))
        for value in guesses:
            study.add_trial(trial(0, value and sign * value, guessed=True, failed=value is None))
        return guesses_pay_off(study.trials, objective)

    assert goes_on([1.0]), "too few to say"
    assert goes_on([1.0, 65.0, 66.0])
    assert not goes_on([54.0, 55.0, 99.0]), "the best of several is good by luck"
    assert not goes_on([None, None, None])


def test_guesses_wait_for_the_first_ones_to_be_compared() -> None:
    study, objective = optuna.create_study(direction="minimize"), Objective("score", "min")
    for _ in range(3):
        study.add_trial(create_trial(state=TrialState.RUNNING, user_attrs={GUESSED: True}))
    assert not guesses_pay_off(study.trials, objective), "nothing has reported"
    study.add_trial(trial(3, 2.0))
    assert not guesses_pay_off(study.trials, objective), "no guess has"
    for number in range(4, 8):
        assert not guesses_pay_off(study.trials, objective), "most guesses have not"
        study.add_trial(trial(number, 1.0, guessed=True))
    assert guesses_pay_off(study.trials, objective)


def test_each_is_near_one_of_those_that_are_known() -> None:
    narrow = {"lr": FloatDistribution(0.0, 1.0)}
    found = [guess(2, 5, seed, [{"lr": 0.1}, {"lr": 0.9}], narrow).get("lr", 0.5) for seed in range(200)]
    assert min(found) < 0.2 and max(found) > 0.8
    assert sum(abs(x - 0.5) < 0.1 for x in found if x != 0.5) < 5
