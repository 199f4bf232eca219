"""Early and later order of made-up curves with known answers."""

from __future__ import annotations

from gaudi_tune.define.objective import Objective
from gaudi_tune.show.early_order import early_order
from tests.helpers.fed_state import Fed

MORE = Objective("score", "max")


def of_curves(*curves: list[float]) -> Fed:
    fed = Fed(epochs=9, trials=len(curves))
    for number, curve in enumerate(curves, start=1):
        fed.trial(number, *curve)
    return fed


def test_an_order_that_holds_keeps_all_of_the_best() -> None:
    fed = of_curves(*([0.01 * n, 0.02 * n, 0.03 * n] for n in range(9)))
    order = early_order(fed.state.searched, MORE)
    assert order is not None
    assert order == (9, 3, 3, {1: 3, 2: 3})
    assert order.in_words("epoch", (1,)) == (
        "the first rung, epoch 1, keeps 3 of the 3 that are best at epoch 3, of 9 trials that got there (100%)"
    )
    assert order.in_words("epoch", ()) == ""


def test_an_order_that_turns_asks_for_a_longer_first_rung() -> None:
    """The later best three begin as the worst, and are ahead from epoch 3 on."""
    fed = of_curves(*([0.1 - 0.01 * n, 0.1 - 0.01 * n, 0.2 + n / 10, 0.3 + n / 10] for n in range(9)))
    order = early_order(fed.state.searched, MORE)
    assert order is not None
    assert order.kept == {1: 0, 2: 0, 3: 3}
    words = order.in_words("epoch", (1, 3))
    assert words.endswith("keeps 0 of the 3 that are best at epoch 4, of 9 trials that got there (0%): lengthen it "
                          "with --grace 3")  # fmt: skip


def test_a_rung_that_keeps_more_than_a_later_one_does_is_not_recommended() -> None:
    """At epoch 2 the order is that of the end by chance, at epoch 3 it is turned round."""
    fed = of_curves(*([0.1 - 0.01 * n, 0.2 + 0.01 * n, 0.4 - 0.01 * n, 0.5 + 0.1 * n] for n in range(9)))
    order = early_order(fed.state.searched, MORE)
    assert order is not None
    assert order.kept == {1: 0, 2: 3, 3: 0}
    assert "--grace" not in order.in_words("epoch", (1, 3))


def test_only_what_enough_trials_have_reached_is_compared() -> None:
    curves = [[0.1 * n] * (1 if n < 5 else 3) for n in range(14)]
    order = early_order(of_curves(*curves).state.searched, MORE)
    assert order is not None
    assert (order.trials, order.until) == (9, 3)
    assert early_order(of_curves(*curves[:13]).state.searched, MORE) is None  # then nine got to epoch 1 alone
    assert early_order(of_curves(*curves[:8]).state.searched, MORE) is None
