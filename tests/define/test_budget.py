"""What a budget may be: users make theirs in Python."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from gaudi_tune import Budget, SweepError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 1.5}, "epochs must be a whole number, in digits such as 20, but got 1.5"),
        ({"epochs": 3, "grace": True}, "grace must be a whole number, .* but got True"),
        ({"epochs": 3, "seconds": -1}, "seconds must be at least 0, but got -1"),
        ({"epochs": 3, "reduction": 1}, "reduction must be at least 2, but got 1"),
        ({"epochs": 3, "grace": 4}, "grace must be at most the budget, 3 epochs, but got 4"),
        ({}, r"epochs or steps must be above 0, .*; give a budget such as Budget\(epochs=10\)"),
        ({"epoch": 3}, r"Budget has no field epoch \(did you mean epochs\?\)"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SweepError, match=message):
        Budget(**values)


def test_a_budget_is_a_value() -> None:
    budget = Budget(epochs=3)
    assert budget == Budget(epochs=3) == replace(Budget(epochs=4), epochs=3)
    assert hash(budget) == hash(Budget(epochs=3))
    with pytest.raises(FrozenInstanceError):
        budget.epochs = 4  # type: ignore[misc]


def test_the_grace_may_be_the_whole_budget_and_the_reduction_2() -> None:
    assert Budget(epochs=3, grace=3).rungs() == []
    assert Budget(epochs=16, reduction=2).rungs() == [1, 2, 4, 8]


def test_the_reports_of_a_loop_that_counts_nothing_itself_are_counted() -> None:
    assert Budget(epochs=3).progress({"training_iteration": 2}) == 2
    in_steps = Budget(steps=100, eval_every=10)
    assert in_steps.progress({"training_iteration": 3}) == 30
    assert [in_steps.spent({"training_iteration": reports}) for reports in (9, 10)] == [False, True]
