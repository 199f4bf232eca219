"""The median rule: trials end that are worse than the others were."""

from __future__ import annotations

from collections.abc import Mapping

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.policies.schedulers.median import MedianRule
from gaudi_tune.sweep.record.events import TrialEnded
from tests.helpers.scheduled import CONTINUE, STOP, Sweep


def held_against(**completed: Mapping[int, float]) -> Sweep:
    """The median rule, with these trials completed."""
    sweep = Sweep(MedianRule)
    for name, curve in completed.items():
        for epoch, score in curve.items():
            sweep.report(name, epoch, score)
    for name in completed:
        sweep.end(name)
    return sweep


def test_the_median_rule_needs_three_completed_trials_and_compares_with_their_means() -> None:
    sweep = Sweep(MedianRule)
    for name, score in (("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 0.0)):
        assert sweep.report(name, 1, score) == CONTINUE
    assert sweep.report("low", 1, 1.9) == CONTINUE  # the others still train
    for name in "abc":
        sweep.end(name)
    assert sweep.report("low", 1, 1.9) == STOP
    assert sweep.reason("low") == "worse than the median of 3 others at epoch 1"
    assert sweep.report("high", 1, 2.1) == CONTINUE
    assert sweep.after_a_resume().report("low again", 1, 1.8) == STOP


def test_the_median_rule_prefers_less_where_the_mode_says_so_and_leaves_out_trials_that_raised_an_error() -> None:
    sweep = Sweep(MedianRule, [Objective("score", "min")])
    for name, score in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        sweep.report(name, 1, score)
        sweep.end(name)
    sweep.report("raised", 1, 0.1)
    sweep.state.apply(
        TrialEnded(trial=4, outcome="failed", reason="an error", failure=Failure(FailureKind.LOOP_ERROR, "an error"))
    )
    assert sweep.report("high", 1, 2.1) == STOP
    assert sweep.report("low", 1, 1.9) == CONTINUE


def test_the_median_rule_stops_none_within_the_grace() -> None:
    sweep = Sweep(MedianRule, budget=Budget(epochs=27, grace=3))
    for name in "abc":
        for epoch in (1, 2, 3):
            sweep.report(name, epoch, 5.0)
        sweep.end(name)
    assert [sweep.report("d", epoch, 1.0) for epoch in (1, 2, 3)] == [CONTINUE, CONTINUE, STOP]


def test_the_median_rule_looks_at_those_that_got_as_far() -> None:
    sweep = held_against(a={1: 5.0}, b={1: 5.0}, c={1: 5.0})
    assert sweep.report("d", 2, 1.0) == CONTINUE  # nobody else has got there


def test_the_median_rule_takes_the_best_of_a_trial_and_the_others_only_until_then() -> None:
    sweep = Sweep(MedianRule)
    sweep.report("once good", 1, 3.5)
    sweep.report("never good", 1, 2.5)
    for name in "abc":
        for epoch, score in ((1, 2.0), (2, 4.0), (3, 100.0)):
            sweep.report(name, epoch, score)
    for name in "abc":
        sweep.end(name)
    assert sweep.report("once good", 2, 0.0) == CONTINUE  # 3.5 against a mean of 3
    assert sweep.report("never good", 2, 2.9) == STOP
