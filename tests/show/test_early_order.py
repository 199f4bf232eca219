"""The first rung and the later order of made-up curves with known answers."""

from __future__ import annotations

import pytest

from gaudi_tune.define.objective import Objective
from gaudi_tune.show.early_order import first_rung_too_early
from tests.helpers.fed_state import Fed

LATER = "the first rung, epoch 1, keeps 0 of the 3 that are best at epoch 4, of 9 trials that got there: lengthen it "


@pytest.mark.parametrize(
    ("curves", "words"),
    [
        ([[0.01 * n, 0.02 * n, 0.03 * n] for n in range(9)], ""),  # the order holds
        # The later best three begin as the worst, and are ahead from epoch 3 on.
        ([[0.1 - 0.01 * n, 0.1 - 0.01 * n, 0.2 + n / 10, 0.3 + n / 10] for n in range(9)], LATER + "with --grace 3"),
        # At epoch 2 the order is that of the end by chance, at epoch 3 it is turned round.
        ([[0.1 - 0.01 * n, 0.2 + 0.01 * n, 0.4 - 0.01 * n, 0.5 + 0.1 * n] for n in range(9)], ""),
        # Too few got beyond epoch 1, and in all.
        ([[0.1 - 0.01 * n] + [0.1 * n] * 2 * (n > 5) for n in range(14)], ""),
        ([[0.1 - 0.01 * n, 0.1 - 0.01 * n, 0.2 + n / 10, 0.3 + n / 10] for n in range(8)], ""),
    ],
)
def test_a_first_rung_that_is_too_early_is_named_with_one_that_is_not(curves: list[list[float]], words: str) -> None:
    fed = Fed(epochs=9, trials=len(curves))
    for number, curve in enumerate(curves, start=1):
        fed.trial(number, *curve)
    trials, objective = fed.state.searched, Objective("score", "max")
    assert first_rung_too_early(trials, objective, "epoch", (1, 3)) == words
    assert first_rung_too_early(trials, objective, "epoch", ()) == ""
