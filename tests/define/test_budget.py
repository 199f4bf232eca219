"""What a budget may be: users make theirs in Python."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from gaudi_tune import Budget, SweepError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 1.5}, "epochs must be a whole number, such as 20, but got 1.5"),
        ({"epochs": 3, "grace": True}, "grace must be a number, but got True"),
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


def test_the_reports_of_a_loop_that_counts_nothing_itself_are_counted() -> None:
    assert Budget(epochs=3).progress({"training_iteration": 2}) == 2
    in_steps = Budget(steps=100, eval_every=10)
    assert in_steps.progress({"training_iteration": 3}) == 30
    assert [in_steps.spent({"training_iteration": reports}) for reports in (9, 10)] == [False, True]


@pytest.mark.parametrize(
    ("budget", "rungs"),
    [
        (Budget(epochs=27), [1, 3, 9]),
        (Budget(epochs=33), [1, 3, 9]),
        (Budget(epochs=34), [1, 3, 9, 27]),
        (Budget(epochs=1), []),
        (Budget(epochs=3, grace=3), []),
        (Budget(epochs=2), [1]),
        (Budget(steps=1000, eval_every=100), [100, 300]),  # 900 is too late to save much
        (Budget(epochs=90), [1, 3, 9, 27]),
        (Budget(epochs=90, grace=5), [5, 15, 45]),
        (Budget(epochs=10, reduction=2), [1, 2, 4, 8]),
        (Budget(epochs=10, grace=9), []),
        (Budget(steps=100, eval_every=100), []),
        (Budget(epochs=90, seconds=3600), [400, 1200]),
        (Budget(epochs=90, seconds=3600, grace=60), [60, 180, 540, 1620]),
        (Budget(steps=100, eval_every=100, seconds=1), []),
    ],
)
def test_rungs_are_in_the_unit_of_the_budget(budget: Budget, rungs: list[int]) -> None:
    assert budget.rungs() == rungs
