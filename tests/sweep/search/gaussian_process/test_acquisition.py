from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from gaudi_tune.sweep.search.gaussian_process import acquisition
from gaudi_tune.sweep.search.gaussian_process.acquisition import (
    log_expected_excess,
    log_expected_improvement,
    log_hypervolume_improvement,
    minus_costs,
)
from gaudi_tune.sweep.search.gaussian_process.process import Array, GaussianProcess, Posterior
from tests.sweep.search.gaussian_process.test_process import (
    INPUTS,
    KERNEL,
    NONE,
    PARAMETER_OF_COLUMN,
    process,
    scikit_learn_process,
)

POINTS = np.random.default_rng(5).random((8, 3))
RUNNING = np.random.default_rng(6).random((2, 3))


def other() -> GaussianProcess:
    """A process whose scores fall where those of the first grow."""
    scores = -process().scores + INPUTS[:, 2]
    return GaussianProcess(INPUTS, PARAMETER_OF_COLUMN, (scores - scores.mean()) / scores.std(), KERNEL, fit=False)


def test_the_excess_of_a_normal_number_is_right_from_far_below_to_far_above() -> None:
    above = np.array([-5.0, -1.0, 0.0, 1.0, 8.0])
    np.testing.assert_allclose(log_expected_excess(above), np.log(above * norm.cdf(above) + norm.pdf(above)), rtol=1e-9)
    near, far = log_expected_excess(np.array([-24.999, -25.001]))
    assert near - far == pytest.approx(0.05, rel=0.01), "both formulas meet"
    assert log_expected_excess(np.array([-1000.0]))[0] == pytest.approx(
        -500_000 - math.log(2 * math.pi) / 2 - 2 * math.log(1000)
    )


@pytest.mark.parametrize("running", [NONE, RUNNING])
def test_the_expected_improvement_equals_that_of_draws(running: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquisition, "N_FANTASIES", 5000)
    points, best = np.random.default_rng(7).random((60, 3)), process().scores.max()
    values = log_expected_improvement(process(), running, np.random.default_rng(0))(points)
    for place in np.argsort(values)[-4:]:
        point, value = points[place], values[place]
        drawn = scikit_learn_process().sample_y(np.concatenate([point[None], running]), 200_000, random_state=0)
        assert math.exp(value) == pytest.approx(np.maximum(drawn.max(axis=0) - best, 0).mean(), rel=0.1)


def area(points: Array, corner: Array) -> float:
    """The area that points of two objectives dominate."""
    found, reached = 0.0, corner[1]
    for first, second in sorted(points.tolist(), reverse=True):
        found += max(0.0, first - corner[0]) * max(0.0, second - reached)
        reached = max(reached, second)
    return found


def test_the_expected_growth_of_the_area_ranks_two_objectives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquisition, "N_DIRECTIONS", 20_000)
    processes, draws = [process(), other()], np.random.default_rng(1).standard_normal((2000, 2))
    scores = np.stack([each.scores for each in processes], axis=1)
    corner = scores.min(axis=0) - 0.1 * np.ptp(scores, axis=0)
    values = log_hypervolume_improvement(processes, NONE, np.random.default_rng(0))(POINTS)
    posteriors = [Posterior(each, NONE, np.empty((1, 0))) for each in processes]
    predictions = [posterior.predict(POINTS) for posterior in posteriors]
    means = np.stack([objective_means[:, 0] for objective_means, _ in predictions], axis=1)
    deviations = np.stack([objective_deviations for _, objective_deviations in predictions], axis=1)
    before = area(scores, corner)
    grown = np.array([
        np.mean([area(np.concatenate([scores, [mean + deviation * draw]]), corner) for draw in draws]) - before
        for mean, deviation in zip(means, deviations, strict=True)
    ])  # fmt: skip
    ratios = np.exp(values[grown > 0.01]) / grown[grown > 0.01]
    assert len(ratios) >= 3 and ratios.max() / ratios.min() < 1.3, "they are the same up to a factor"


def test_a_running_trial_that_may_move_the_front_takes_from_what_is_near_it() -> None:
    def promised(running: Array) -> Array:
        return log_hypervolume_improvement([process(), other()], running, np.random.default_rng(0))(POINTS)

    alone = promised(NONE)
    best = int(alone.argmax())
    beside = promised(POINTS[[best]])
    assert np.argmin(beside - alone) == best and beside[best] < alone[best] - 1
    assert np.median(beside - alone) > -0.2


def test_the_cost_of_time_is_taken_off() -> None:
    acquisition = log_expected_improvement(process(), NONE, np.random.default_rng(0))
    dear = minus_costs(acquisition, np.array([1.0, 0.0, 2.0]))
    np.testing.assert_allclose(dear(POINTS), acquisition(POINTS) - POINTS[:, 0] - 2 * POINTS[:, 2])
    assert minus_costs(acquisition, None) is acquisition
