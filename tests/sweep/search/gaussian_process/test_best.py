from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.optimize import minimize

from gaudi_tune.sweep.search.gaussian_process.best import best_row
from gaudi_tune.sweep.search.gaussian_process.improvement import of_best
from gaudi_tune.sweep.search.gaussian_process.process import Array, Process
from gaudi_tune.sweep.search.gaussian_process.space import Space


def scores_of(rows: Array, random: np.random.Generator) -> Array:
    weights, best = random.exponential(1, rows.shape[1]), random.random(rows.shape[1])
    scores = -(weights * np.square(rows - best)).sum(axis=1) + 0.05 * random.standard_normal(len(rows))
    return np.asarray((scores - scores.mean()) / scores.std())


@pytest.mark.parametrize("seed", range(4))
def test_it_promises_as_much_as_what_many_ascents_of_scipy_find(seed: int) -> None:
    random = np.random.default_rng(seed)
    space = Space({name: FloatDistribution(0, 1) for name in "abcdef"})
    rows = space.drawn(100, random)
    scores = scores_of(rows, random)
    process = Process(rows, space.of, scores, None, fit=True)
    promise, known = of_best(process, space.drawn(5, random), random), rows[[scores.argmax()]]
    found = best_row(promise, space, known, process.lengths, random)

    def downhill(row: Array) -> tuple[float, Array]:
        promises, derivatives = promise(row[None])
        return -promises[0], -derivatives()[0]

    starts = [*space.drawn(20, random), *known]
    theirs = [minimize(downhill, start, jac=True, method="L-BFGS-B", bounds=[(0, 1)] * 6).fun for start in starts]
    assert promise(found[None])[0] > -min(theirs) - 0.1
    assert found.min() >= 0 and found.max() <= 1


@pytest.mark.parametrize("seed", range(3))
def test_choices_promise_as_much_as_the_best_of_all_of_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    choices: dict[str, BaseDistribution] = {name: CategoricalDistribution([*range(4)]) for name in "ab"}
    space = Space({**choices, "layers": IntDistribution(1, 12), "x": FloatDistribution(0, 1)})
    rows = space.drawn(80, random)
    process = Process(rows, space.of, scores_of(rows, random), None, fit=True)
    promise = of_best(process, space.drawn(3, random), random)
    found = best_row(promise, space, rows[:1], process.lengths, random)
    every = [
        {"a": a, "b": b, "layers": layers, "x": x}
        for a in range(4) for b in range(4) for layers in range(1, 13) for x in np.linspace(0, 1, 21)
    ]  # fmt: skip
    assert promise(found[None])[0] > promise(space.rows(every))[0].max() - 0.1
    np.testing.assert_allclose(space.rows([space.configuration(found)])[0], found, atol=1e-9)


def test_it_goes_to_the_end_of_a_range_if_that_is_best() -> None:
    space = Space({"x": FloatDistribution(0, 1), "choice": CategoricalDistribution([8, 16])})

    def grows(rows: Array) -> tuple[Array, Callable[[], Array]]:
        slope = np.array([1.0, 0.0, 1.0])
        return rows @ slope, lambda: np.tile(slope, (len(rows), 1))

    found = best_row(grows, space, np.zeros((1, 3)), np.ones(3), np.random.default_rng(0))
    assert space.configuration(found) == {"x": 1.0, "choice": 16}
