from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from experiments.sweep.decide.search.extrapolation import Curve, Curves, scale_of
from experiments.sweep.define.objective import Mode

LEVELS = [1, 3, 9]


def extrapolate(curves: Sequence[Curve], mode: Mode, levels: Sequence[int]) -> list[float | None]:
    """What to expect of each curve; None for one without values."""
    kept = Curves(mode, levels)
    for number, curve in enumerate(curves):
        kept.put(number, curve)
    return [None if math.isnan(value) else value for value in kept.expected().tolist()]


def test_a_complete_curve_keeps_its_best_value_and_an_empty_one_has_none() -> None:
    assert extrapolate([{1: 0.9, 3: 0.2, 9: 0.4}, {}], "min", LEVELS) == [pytest.approx(0.2), None]


def test_losses_move_by_the_median_factor_of_those_that_got_further() -> None:
    halved = {1: 1.0, 3: 0.5, 9: 0.25}
    curves = [halved, {1: 2.0, 3: 1.0}, {1: 4.0, 3: 2.0}, {1: 8.0}, {1: 3.0, 3: 3.0}]
    # From 1 to 3 half in the median of four, from 3 to 9 half in the only one.
    assert extrapolate(curves, "min", LEVELS) == pytest.approx([0.25, 0.5, 1.0, 2.0, 1.5])


def test_only_those_that_reached_the_next_level_say_how_far_it_is() -> None:
    still_at_two = {1: 1.0, 2: 0.1}
    assert extrapolate([{1: 1.0, 3: 0.5}, still_at_two, {1: 1.0}], "min", [1, 3])[2] == pytest.approx(0.5)


def test_between_two_levels_the_rest_of_the_way_is_left() -> None:
    curves = [{1: 1.0, 3: 0.25}, {1: 1.0, 2: 0.5}]
    left = 1 - math.log(2) / math.log(3)
    assert extrapolate(curves, "min", [1, 3])[1] == pytest.approx(0.5 * 0.25**left)


def test_accuracies_move_by_log_odds_and_stay_below_one() -> None:
    curves = [{1: 0.5, 3: 0.8}, {1: 0.9}]
    expected = extrapolate(curves, "max", [1, 3])
    assert expected[1] == pytest.approx(36 / 37)  # odds of 9 times 4


def test_a_loss_of_zero_is_no_error_and_changes_nothing_for_the_others() -> None:
    curves = [{1: 1.0, 3: 0.0}, {1: 1.0, 3: 0.5}, {1: 2.0, 3: 1.0}, {1: 4.0}]
    assert extrapolate(curves, "min", [1, 3]) == pytest.approx([0.0, 0.5, 1.0, 2.0])


def test_a_perfect_accuracy_is_no_error() -> None:
    expected = extrapolate([{1: 0.5, 3: 1.0}, {1: 0.0}, {1: 1.0}], "max", [1, 3])
    assert expected[0] == 1.0
    assert all(value is not None and 0 <= value <= 1 for value in expected)


@pytest.mark.parametrize("mode", ["min", "max"])
def test_values_of_any_sign_move_by_differences(mode: str) -> None:
    sign = -1.0 if mode == "min" else 1.0
    curves = [{1: -sign, 3: sign * 2.0}, {1: sign * 5.0}]
    assert extrapolate(curves, "min" if mode == "min" else "max", [1, 3])[1] == pytest.approx(sign * 8.0)


def test_trials_of_one_level_keep_their_order() -> None:
    curves = [{1: 0.3, 3: 0.1}, {1: 0.9, 3: 0.7}, *({1: value} for value in (0.2, 0.4, 0.6))]
    expected = [value for value in extrapolate(curves, "min", LEVELS)[2:] if value is not None]
    assert expected == sorted(expected) and len(set(expected)) == 3


def test_a_trial_that_reported_before_the_first_level_has_all_of_the_way_before_it() -> None:
    assert extrapolate([{2: 1.0, 6: 0.5}, {1: 1.0}], "min", [2, 6])[1] == pytest.approx(0.5)


def test_the_scale_goes_there_and_back() -> None:
    for values, mode in (([0.2, 3.0], "min"), ([0.1, 0.8], "max"), ([-4.0, 3.0], "min"), ([2.0, 7.0], "max")):
        forth, back = scale_of(min(values), max(values), "min" if mode == "min" else "max")
        assert back(forth(np.array(values))) == pytest.approx(values)
