"""Whether one configuration is better than another, on numbers by scipy and on sweeps without a difference."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gaudi_tune.define.objective import Mode, Objective
from gaudi_tune.sweep.record.comparison import SURE, gain_over, half_width, winning_row

SWEEPS = 10_000


@pytest.mark.parametrize("looks", [1, 2])
def test_it_is_the_test_of_scipy(looks: int) -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        one, other = random.normal(0.5, 1.0, 3).tolist(), random.normal(0.0, 3.0, 5).tolist()
        gain, test = gain_over(other, [one], looks), stats.ttest_ind(one, other, equal_var=False)
        interval = test.confidence_interval(1 - 0.05 / looks)
        assert gain.interval == pytest.approx((interval.low, interval.high))
        chance = stats.ttest_ind(one, other, equal_var=False, alternative="greater").pvalue
        assert gain.confidence == pytest.approx(1 - min(1.0, looks * chance))
        mean = stats.ttest_1samp(one, 0.0).confidence_interval(0.95)
        assert half_width(one) == pytest.approx((mean.high - mean.low) / 2)


@pytest.mark.parametrize("seeds", [(3, 6), (4, 8)])
def test_a_winner_that_is_as_good_as_the_baseline_is_called_ahead_at_99_percent_in_one_sweep_of_a_hundred_at_most(
    seeds: tuple[int, int],
) -> None:
    first, most = seeds
    scores = np.random.default_rng(1).normal(size=(2, SWEEPS, most)).tolist()
    convinced = 0
    for winner, baseline in zip(*scores, strict=True):
        gain = gain_over(baseline[:first], [winner[:first]], looks=2)
        if gain.is_open:
            gain = gain_over(baseline, [winner], looks=2)
        convinced += gain.confidence is not None and gain.confidence >= SURE
    assert convinced / SWEEPS <= 1 - SURE


def test_a_verdict_is_open_where_more_seeds_may_tell() -> None:
    baseline = [0.50, 0.52, 0.51]
    assert gain_over(baseline, [[0.52, 0.53, 0.51]]).is_open
    assert not gain_over(baseline, [[0.60, 0.63, 0.61]]).is_open, "it is settled"
    assert not gain_over(baseline, [[0.50, 0.53, 0.45]]).is_open, "nothing speaks for it"
    assert not gain_over(baseline, [[0.60]]).is_open, "nothing is known"


@pytest.mark.parametrize(("mode", "winner"), [("max", 1), ("min", 4)])
def test_the_best_of_a_confirmation_may_be_the_baseline(mode: Mode, winner: int) -> None:
    rows = [{"trial": number, "mean": mean} for number, mean in ((3, 0.7), (4, 0.6), (1, 0.8))]
    confirmation = {"rivals": rows[:2], "baseline": rows[2]}
    found = winning_row(confirmation, Objective("score", mode))
    assert found is not None and found["trial"] == winner
    assert winning_row({**confirmation, "baseline": None}, Objective("score")) == rows[0]
    assert winning_row(None, Objective("score")) is None
