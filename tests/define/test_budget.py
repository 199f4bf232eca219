"""What a budget may be: users make theirs in Python."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_tune import Budget


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 1.5}, "epochs must be a whole number from 0 to 1,000,000,000, but got 1.5"),
        ({"epochs": 3, "grace": True}, "grace must be a whole number .* but got True"),
        ({"epochs": 3, "seconds": -1}, "seconds must be a whole number from 0 .* but got -1"),
        ({"epochs": 3, "reduction": 1}, "reduction must be at least 2, but got 1"),
        ({"epochs": 3, "grace": 4}, "grace must be at most the budget, 3 epochs, but got 4"),
        ({"epochs": 3, "grace": -1}, "grace must be a whole number from 0 .* but got -1"),
    ],
)
def test_a_wrong_one_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Budget(**given)


def test_the_grace_may_be_the_whole_budget_and_the_reduction_2() -> None:
    assert Budget(epochs=3, grace=3).rungs() == []
    assert Budget(epochs=16, reduction=2).rungs() == [1, 2, 4, 8]


def test_the_reports_of_a_loop_that_counts_nothing_itself_are_counted() -> None:
    assert Budget(epochs=3).progress({"training_iteration": 2}) == 2
    in_steps = Budget(steps=100, eval_every=10)
    assert in_steps.progress({"training_iteration": 3}) == 30
    assert [in_steps.spent({"training_iteration": reports}) for reports in (9, 10)] == [False, True]
