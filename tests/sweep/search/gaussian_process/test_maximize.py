from __future__ import annotations

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.optimize import minimize

from gaudi_tune.sweep.search.gaussian_process.acquisition import log_expected_improvement
from gaudi_tune.sweep.search.gaussian_process.maximize import maximize
from gaudi_tune.sweep.search.gaussian_process.process import Array, GaussianProcess
from gaudi_tune.sweep.search.gaussian_process.space import Space


def scores_of(rows: Array, random: np.random.Generator) -> Array:
    weights, best = random.exponential(1, rows.shape[1]), random.random(rows.shape[1])
    scores = -(weights * np.square(rows - best)).sum(axis=1) + 0.05 * random.standard_normal(len(rows))
    return np.asarray((scores - scores.mean()) / scores.std())


@pytest.mark.parametrize("seed", range(4))
def test_it_promises_as_much_as_what_many_ascents_of_scipy_find(seed: int) -> None:
    random = np.random.default_rng(seed)
    space = Space({name: FloatDistribution(0, 1) for name in "abcdef"})
    rows = space.random_rows(100, random)
    scores = scores_of(rows, random)
    process = GaussianProcess(rows, space.parameter_of_column, scores, None, fit=True)
    acquisition, known = (
        log_expected_improvement(process, space.random_rows(5, random), random),
        rows[[scores.argmax()]],
    )
    found = maximize(acquisition, space, known, process.length_scales, random)

    def less(row: Array) -> float:
        return float(-acquisition(row[None])[0])

    starts = [*space.random_rows(20, random), *known]
    theirs = [minimize(less, start, method="L-BFGS-B", bounds=[(0, 1)] * 6).fun for start in starts]
    assert acquisition(found[None])[0] > -min(theirs) - 0.1
    assert found.min() >= 0 and found.max() <= 1


@pytest.mark.parametrize("seed", range(3))
def test_choices_promise_as_much_as_the_best_of_all_of_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    choices: dict[str, BaseDistribution] = {name: CategoricalDistribution([*range(4)]) for name in "ab"}
    space = Space({**choices, "layers": IntDistribution(1, 12), "x": FloatDistribution(0, 1)})
    rows = space.random_rows(80, random)
    process = GaussianProcess(rows, space.parameter_of_column, scores_of(rows, random), None, fit=True)
    acquisition = log_expected_improvement(process, space.random_rows(3, random), random)
    found = maximize(acquisition, space, rows[:1], process.length_scales, random)
    every = [
        {"a": a, "b": b, "layers": layers, "x": x}
        for a in range(4) for b in range(4) for layers in range(1, 13) for x in np.linspace(0, 1, 21)
    ]  # fmt: skip
    assert acquisition(found[None])[0] > acquisition(space.rows(every)).max() - 0.1
    np.testing.assert_allclose(space.rows([space.configuration(found)])[0], found, atol=1e-9)


def test_it_goes_to_the_end_of_a_range_if_that_is_best() -> None:
    space = Space({"x": FloatDistribution(0, 1), "choice": CategoricalDistribution([8, 16])})

    def grows(rows: Array) -> Array:
        return rows @ np.array([1.0, 0.0, 1.0])

    found = maximize(grows, space, np.zeros((1, 3)), np.ones(3), np.random.default_rng(0))
    assert space.configuration(found) == {"x": 1.0, "choice": 16}
