"""Schedulers asked by hand, about a record that is fed by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, get_args

import pytest

from gaudi_tune.base import names
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.options import SchedulerName
from gaudi_tune.sweep.policies.schedulers.factory import SCHEDULERS
from gaudi_tune.sweep.policies.schedulers.halving import PromotingHalving, Rung, SuccessiveHalving
from tests.helpers.scheduled import CONTINUE, PAUSE, SCORE, STOP, Sweep


def asha(objectives: Sequence[Objective] = (SCORE,)) -> Sweep:
    return Sweep(SuccessiveHalving, objectives)


def promoting(trials: int = 1000, objectives: Sequence[Objective] = (SCORE,)) -> Sweep:
    return Sweep(PromotingHalving, objectives, trials=trials)


def test_with_a_budget_in_seconds_trials_are_compared_by_time_and_end_by_either() -> None:
    budget = Budget(epochs=9, seconds=90)  # rungs at 10 and 30
    sweep = Sweep(SuccessiveHalving, budget=budget)

    def report(name: str, number: int, second: float, score: float) -> str:
        result = {"epoch": number, names.SECOND: second, "score": score, "training_iteration": number}
        return sweep.tell(name, result, count=number)

    assert [report("quick", n, 4.0 * n, 0.5 + n / 100) for n in range(1, 4)] == [CONTINUE] * 3
    assert report("slow", 1, 29.9, 0.52) == STOP, "its first report lies beyond the first rung, where 0.53 is better"
    assert sweep.reason("slow") == "not among the best third of 2 at second 10"
    assert report("late", 1, 31.0, 0.1) == CONTINUE, "the first at the second rung"
    assert not budget.spent({"epoch": 8, names.SECOND: 89.9})
    assert budget.spent({"epoch": 9, names.SECOND: 12.0}) and budget.spent({"epoch": 2, names.SECOND: 90.0})
    assert str(budget) == "90 seconds or 9 epochs"


def test_asha_keeps_the_best_third_at_each_rung() -> None:
    sweep = asha()
    decisions = [sweep.report(name, 1, score) for name, score in zip("abcdefg", (5, 4, 6, 5, 1, 7, 6), strict=True)]
    # b is beaten by a, c by none, d by c alone of four, e by all, f by none, g by f alone (c ties).
    assert decisions == [CONTINUE, STOP, CONTINUE, CONTINUE, STOP, CONTINUE, CONTINUE]
    assert sweep.report("a", 2, 0) == CONTINUE  # between rungs nothing is compared
    assert sweep.report("a", 3, 1) == CONTINUE  # the first at its rung
    assert [sweep.report("c", 2, 9), sweep.report("c", 3, 0)] == [CONTINUE, STOP]


TWO = [SCORE, Objective("seconds", "min")]
BOTH = {"a": (5, 5), "b": (1, 1), "c": (4, 6), "d": (6, 4), "e": (3, 3), "f": (2, 1), "g": (5.5, 5.2)}
"""Score and seconds: d, f and e are the front, then g, b and a, then c."""


def test_asha_keeps_the_best_third_by_several_objectives() -> None:
    sweep = asha(TWO)
    decisions = {name: sweep.report(name, 1, score, seconds=seconds) for name, (score, seconds) in BOTH.items()}
    # b is on a front with a, which has the better score; e with d and b, which are far from each other; g is fourth.
    assert decisions == {"a": CONTINUE, "b": STOP, "c": STOP, "d": CONTINUE, "e": STOP, "f": CONTINUE, "g": STOP}
    assert sweep.report("a", 2, 1.0, seconds=math.nan) == STOP
    assert sweep.report("d", 2, 1.0) == STOP, "one of the objectives is missing"


def test_by_several_objectives_trials_that_wait_go_on_from_both_ends_of_the_front() -> None:
    sweep = promoting(7, TWO)
    for name, (score, seconds) in BOTH.items():
        sweep.report(name, 1, score, seconds=seconds)
    resumed = sweep.after_a_resume()
    assert isinstance(resumed.scheduler, PromotingHalving)
    rung = resumed.scheduler._rungs[1]
    assert rung.ranked == [sweep.numbers[name] for name in "dfegbac"]
    assert [rung.count_better(sweep.numbers[name]) for name in "dc"] == [0, 6]
    assert resumed.next_trials() == ["a", "e"]  # d and f went on at once
    assert resumed.held() == {"b": 1, "c": 1, "g": 1}


def test_equal_scores_are_told_apart_by_the_validation_loss() -> None:
    sweep = asha()
    for name, loss in zip("abc", (0.5, 0.4, 0.3), strict=True):
        assert sweep.report(name, 1, 0.9, val_loss=loss) == CONTINUE
    assert sweep.report("d", 1, 0.9, val_loss=0.6) == STOP


@pytest.mark.parametrize("loss", [None, "n/a"])
def test_a_validation_loss_that_is_no_number_tells_nothing_apart(loss: Any) -> None:
    sweep = asha()
    assert sweep.report("a", 1, 5, val_loss=loss) == CONTINUE
    assert sweep.report("b", 1, 4, val_loss=0.1) == STOP


def test_one_in_so_many_goes_on() -> None:
    sweep = Sweep(SuccessiveHalving, budget=Budget(epochs=32, grace=4, reduction=2))
    assert sweep.report("a", 2, 1.0) == sweep.report("b", 2, 0.0) == CONTINUE  # no rung there
    assert [sweep.report(name, 4, score) for name, score in (("a", 3.0), ("b", 2.0), ("c", 2.5))] == [
        CONTINUE, STOP, CONTINUE,
    ]  # fmt: skip
    assert sweep.reason("b") == "not among the best half of 2 at epoch 4"


def test_steps_count_where_the_budget_is_in_steps() -> None:
    sweep = Sweep(SuccessiveHalving, budget=Budget(steps=1000, eval_every=100))
    for name, score, verdict in (("a", 2.0, CONTINUE), ("b", 1.0, STOP)):
        assert sweep.tell(name, {"step": 100, "epoch": 9.5, "score": score}) == verdict


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["asha", "asha-promote"])
def test_a_value_that_is_not_finite_never_goes_on_and_is_not_compared(name: SchedulerName, value: float) -> None:
    sweep = Sweep(SCHEDULERS[name])
    assert sweep.report("a", 1, value) == STOP
    assert "inf" not in str(sweep.scheduler.get_state()) and "nan" not in str(sweep.scheduler.get_state())


def test_a_trial_first_seen_late_fills_no_earlier_rung() -> None:
    sweep = asha()
    assert sweep.report("resumed", 10, 100.0) == CONTINUE
    assert sweep.report("new", 1, 0.1) == CONTINUE  # held against nobody
    assert sweep.scores() == {1: {"new": 0.1}, 3: {}, 9: {}}


def test_a_rung_is_filled_once_whatever_is_reported_again() -> None:
    sweep = asha()
    for epoch, score in ((1, 5.0), (2, 6.0), (3, 7.0)):
        sweep.report("a", epoch, score)
    for epoch in (1, 2, 3, 4):  # trains again from its last checkpoint
        assert sweep.report("a", epoch, 9.0) == CONTINUE
    sweep.report("b", 1, 7.0)
    assert sweep.scores() == {1: {"a": 5.0, "b": 7.0}, 3: {"a": 7.0}, 9: {}}


def test_a_loop_that_reports_seldom_is_compared_at_the_rungs_it_passes() -> None:
    sweep = asha()
    for epoch in (2, 4, 6, 8, 10):
        sweep.report("a", epoch, float(epoch))
    assert sweep.scores() == {1: {}, 3: {"a": 4.0}, 9: {"a": 10.0}}


def test_promotion_pauses_until_a_trial_is_in_the_best_third() -> None:
    sweep = promoting()
    assert [sweep.report("a", 1, 5.0), sweep.report("b", 1, 4.0)] == [PAUSE, PAUSE]
    assert sweep.next_trials() == []  # two have come: nobody is in the best third
    assert sweep.report("c", 1, 3.0) == PAUSE
    assert sweep.next_trials() == ["a"]
    assert sweep.go_on() == "a"
    assert sweep.next_trials() == []
    assert sweep.report("a", 2, 9.0) == CONTINUE
    assert sweep.report("d", 1, 8.0) == CONTINUE  # the best of four goes on at once
    assert sweep.held() == {"b": 1, "c": 1}


def test_the_last_trials_are_promoted_by_rounding_up_and_the_rest_is_left_over() -> None:
    sweep = promoting(trials=4)
    for name, score in (("a", 5.0), ("b", 4.0), ("c", 3.0), ("d", 2.0)):
        sweep.report(name, 1, score)
    assert sweep.next_trials() == ["a", "b"]  # a third of four, rounded up
    assert sweep.trials_to_end() == []
    assert [sweep.go_on(), sweep.go_on()] == ["a", "b"]
    assert sweep.report("a", 3, 6.0) == CONTINUE  # the first at its rung, of which one at least goes on
    assert sweep.report("b", 3, 5.0) == PAUSE
    assert sweep.next_trials() == []
    assert sweep.trials_to_end() == ["c", "d", "b"]
    sweep.end("c")
    assert sweep.trials_to_end() == ["d", "b"]


def test_none_is_left_over_before_the_last_trial_was_added_or_once_more_are_asked_for() -> None:
    sweep = promoting(trials=3)
    for name, score in (("a", 5.0), ("b", 4.0)):
        sweep.report(name, 1, score)
    assert (sweep.next_trials(), sweep.trials_to_end()) == ([], [])
    sweep.add("c", begins=False)
    assert sweep.next_trials() == ["a"]  # a third of two, rounded up, for all trials are there
    sweep.begin("a")
    sweep.end("a")
    assert sweep.trials_to_end() == ["b"]
    sweep.state.num_trials = 6
    assert sweep.trials_to_end() == []


def test_a_rung_keeps_the_order_that_sorting_it_again_would_give() -> None:
    drawn, rung = random.Random(0), Rung({})
    scores: dict[int, tuple[float, float]] = {}
    for number in range(400):
        name = drawn.randrange(number + 1)  # some come again, with another score
        score = (float(drawn.randrange(9)), -float(drawn.randrange(3)))
        better = sum(other > score for other in scores.values()) - (scores.get(name, score) > score)
        scores[name] = score
        rung.add(name, score)
        ranked = sorted(scores, key=lambda name: scores[name], reverse=True)
        assert rung.count_better(name) == better
        assert rung.ranked == ranked
    assert Rung(dict(scores)).ranked == ranked


def test_trials_of_higher_rungs_go_on_first() -> None:
    sweep = promoting(trials=6)
    for name, score in (("e", 5.0), ("d", 4.0), ("c", 3.0), ("b", 2.0), ("a", 1.0)):
        sweep.report(name, 1, score)
    assert sweep.go_on() == "e"  # the one best of five
    assert sweep.report("e", 3, 5.0) == PAUSE
    sweep.report("f", 1, 0.0)  # the last: thirds are rounded up from now on, at both rungs
    assert sweep.next_trials() == ["e", "d"]


def test_a_trial_that_cannot_be_continued_ends_by_the_rule_of_stopping() -> None:
    sweep, stopping = promoting(), asha()
    for index, score in enumerate((5.0, 4.0, 6.0, 5.0, 1.0)):
        assert sweep.report(f"t{index}", 1, score, starts_over=True) == stopping.report(f"t{index}", 1, score)


def test_a_sweep_with_a_paused_trial_that_fails_goes_on() -> None:
    sweep = promoting()
    for name, score in (("a", 5.0), ("b", 4.0), ("c", 3.0)):
        sweep.report(name, 1, score)
    sweep.fail("a")
    assert sweep.next_trials() == []


def test_every_name_has_a_scheduler() -> None:
    assert set(SCHEDULERS) == set(get_args(SchedulerName))


def test_a_trial_that_is_lost_before_it_could_end_is_told_again() -> None:
    sweep = asha()
    sweep.report("a", 1, 5)
    assert sweep.report("b", 1, 1) == STOP
    sweep.fail("b")  # its actor died; it is retried
    assert sweep.report("b", 1, 1) == STOP
    assert sweep.report("c", 1, 1) == STOP
    sweep.fail("c")
    assert sweep.report("c", 2, 1) == STOP  # from a checkpoint of the rung


def test_a_trial_that_was_to_end_when_the_sweep_was_interrupted_is_told_again() -> None:
    sweep = asha()
    sweep.report("a", 1, 5)
    assert sweep.report("b", 1, 1) == STOP
    resumed = sweep.after_a_resume()
    resumed.add("b")
    assert resumed.report("b", 1, 1) == STOP
