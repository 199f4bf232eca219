"""What a sweep says about itself, of made-up records with known answers."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from gaudi_tune import Experiment, SweepOptions
from gaudi_tune.base import names
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.advice import edge_of, next_steps, step_of, without_effect
from gaudi_tune.show.summary import summarise
from tests.helpers.fed_state import Fed

SPACE = {
    "x": FloatDistribution(0.001, 1.0, log=True),
    "y": FloatDistribution(0.0, 0.5),
    "kind": optuna.distributions.CategoricalDistribution(["sgd", "adamw"]),
    "decay": optuna.distributions.CategoricalDistribution([0.0, 0.1]),
}
X: dict[str, Any] = {"x": 0.03, "y": 0.2, "kind": "adamw", "decay": 0.1}


def train_loop(config: dict[str, Any]) -> None:
    """Never called."""


EXPERIMENT = Experiment(train_loop=train_loop, space=SPACE, metric="score", mode="max")


NOTHING = ["nothing seen here asks for another search: gaudi-tune export a takes the best away"]


def advice(fed: Fed, storage: Any, confirmation: Any = None) -> list[str]:
    plan = make_plan(EXPERIMENT, SweepOptions(storage=storage, name="a", device="cpu"))
    return next_steps(plan, fed.state, confirmation)


def test_a_key_that_no_loop_reads_is_named_after_the_second_trial() -> None:
    fed, space = Fed(), SearchSpace(SPACE)
    for number in (1, 2):
        fed.begin(number, **X)
        unread: dict[str, Any] = {names.UNREAD: "epochs\ny"}
        fed.report(number, 1, 0.1 * number, **unread)
        if number == 1:
            fed.end(number)
            assert without_effect(space, fed.state.searched) == []
    assert without_effect(space, fed.state.searched) == []  # it may yet read it
    fed.end(2)
    (sentence,) = without_effect(space, fed.state.searched)
    assert sentence.startswith("no trial has read y from its configuration: ")
    fed.begin(3, **X)
    fed.report(3, 1, 0.3)
    fed.end(3)
    assert without_effect(space, fed.state.searched) == []


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ((math.pi / 4, math.pi / 4), "trials 001 and 002 report the same numbers to the last bit, though y differs"),
        ((math.pi / 4, math.nextafter(math.pi / 4, 1)), ""),
        ((0.5, 0.5), ""),  # as the share of a class would be
    ],
)
def test_equal_numbers_under_different_values_are_named(losses: tuple[float, float], said: str) -> None:
    fed = Fed()
    for number, loss in enumerate(losses, start=1):
        fed.begin(number, **{**X, "y": 0.1 * number})
        fed.report(number, 1, 11 / 24, val_loss=loss)
        fed.end(number)
    sentences = without_effect(SearchSpace(SPACE), fed.state.searched)
    assert [sentence.startswith(said) for sentence in sentences] == ([True] if said else [])


def test_the_edge_of_a_range_is_named_where_it_could_be_wider(storage: Any) -> None:
    assert edge_of(FloatDistribution(1e-6, 1e-2, log=True), 1.05e-6) == "lower"
    assert edge_of(FloatDistribution(1e-6, 1e-2, log=True), 1e-5) == ""
    assert edge_of(FloatDistribution(0.0, 0.5), 0.5) == "upper"
    assert edge_of(FloatDistribution(0.0, 1.0), 1.0) == ""  # a share
    assert edge_of(IntDistribution(1, 4), 4) == ""  # of few values the last is often the best
    assert edge_of(IntDistribution(8, 64), 64) == "upper"
    fed = Fed()
    for number in range(1, 4):
        fed.trial(number, 0.1 * number, **{**X, "x": 0.3 * number})
    fed.trial(4, 0.9, **{**X, "x": 0.0011})
    assert advice(fed, storage) == [
        "x=0.0011 of trial 004 is at the lower edge of its range (0.001 to 1, logarithmic): widen it"
    ]
    confirmation = {"rivals": [{"trial": 3}], "gain": None}
    assert advice(fed, storage, confirmation) == []


@pytest.mark.parametrize(("confidence", "said"), [(0.99, NOTHING), (0.93, []), (None, [])])
def test_nothing_is_left_to_do_only_if_the_winner_surely_beats_the_baseline(
    confidence: float | None, said: list[str], storage: Any
) -> None:
    fed = Fed()
    for number in range(1, 6):
        fed.trial(number, 0.1 + 0.123456 * (number % 4), **X)
    confirmation = {"rivals": [{"trial": 3}], "gain": {"mean": 0.2, "confidence": confidence}}
    assert advice(fed, storage, confirmation) == said
    fed.begin(6, **X)
    fed.report(6, 1, 0.1)
    fed.state.close()
    assert advice(fed, storage, confirmation) == [], "its trial 6 was interrupted, and can be continued"


def test_a_baseline_that_wins_is_named(storage: Any) -> None:
    fed = Fed()
    for number in range(1, 6):
        fed.trial(number, 1.0 - 0.123456 * number, **X)
    assert advice(fed, storage) == [
        "the baseline is the best of 5 trials: search nearer to it, with more trials, or keep it"
    ]


def test_a_branch_that_never_led_is_named_and_a_stopped_trial_counts_at_its_step(storage: Any) -> None:
    fed = Fed(trials=20)
    for number in range(1, 12):
        kind = "sgd" if number % 2 else "adamw"
        good = number % 2 == 0
        curve = [0.51234, 0.7, 0.9 - number / 1e5] if good else [0.123 + number / 1e3]
        fed.trial(number, *curve, outcome="finished" if good else "stopped early", **{**X, "kind": kind})
        if number == 10:
            assert advice(fed, storage) == NOTHING, "four others ahead of five: 2 times 1 in 126"
    (sentence,) = advice(fed, storage)
    assert sentence == (
        "kind=sgd was behind in all of its 6 trials: at best 0.1340 at epoch 1, half of the others beyond 0.5123: "
        "leave it out, unless it learns late"
    )
    for number in range(12, 16):  # as good at the same step
        fed.trial(number, 0.6, outcome="stopped early", **{**X, "kind": "sgd"})
    assert advice(fed, storage) == NOTHING


def test_what_one_choice_does_is_not_said_of_another_that_its_trials_had(storage: Any) -> None:
    fed = Fed(trials=20)
    for number in range(1, 12):
        kind = "sgd" if number % 2 else "adamw"
        values = {**X, "kind": kind, "decay": 0.0 if number < 9 and kind == "sgd" else 0.1}
        fed.trial(number, (0.6 if kind == "adamw" else 0.1) - number / 1e3 + 1e-7, **values)
    (sentence,) = advice(fed, storage)
    assert sentence.startswith("kind=sgd was behind in all of its 6 trials: at best 0.0990, half"), (
        "the 4 of decay=0.0 are among them"
    )


def test_a_row_that_outweighs_the_differences_is_named(storage: Any) -> None:
    assert step_of({k / 24 for k in (11, 12, 13, 15)}) == pytest.approx(1 / 24)
    assert step_of({100 * k / 24 for k in (11, 12, 13, 15)}) == pytest.approx(100 / 24)
    assert step_of({0.1234567, 0.5432, 0.9876, 0.3141}) is None
    fed = Fed()
    for number, rows in enumerate((14, 15, 15, 14, 11, 10, 9), start=1):
        fed.trial(number, rows / 24, **X)
    (sentence,) = advice(fed, storage)
    assert sentence.startswith("the 4 best trials differ in score by at most 0.042, which is one row of the validation")


def test_a_late_best_is_named_and_all_of_it_is_in_the_summary(storage: Any) -> None:
    fed = Fed()
    for number in range(1, 7):
        fed.trial(number, 0.123456 * number, **X)
    (sentence,) = advice(fed, storage)
    assert sentence.startswith("the best came late, as trial 6 of 6: ")
    assert sentence.endswith("--resume a --add-trials 6")
    plan = make_plan(EXPERIMENT, SweepOptions(storage=storage, name="a", device="cpu"))
    assert summarise(plan, fed.state, {})["next"] == [sentence]
    fed.begin(7, **X)
    assert summarise(plan, fed.state, {})["next"] == []  # it is not over


def test_that_half_of_the_trials_failed_is_said_with_the_reason_of_most(storage: Any) -> None:
    fed = Fed()
    fed.trial(1, 0.1, 0.2, **X)
    fed.trial(2, 0.3, 0.4, **X)
    fed.trial(3, outcome="failed", reason="RuntimeError: no such layer", **X)
    assert not any("failed" in sentence for sentence in advice(fed, storage))
    fed.trial(4, outcome="failed", reason="RuntimeError: no such layer", **X)
    assert advice(fed, storage)[0] == (
        "2 of 4 trials failed, 2 of them of the kind 'loop error' (RuntimeError: no such layer): correct that, or take "
        "what leads there out of the ranges"
    )
