"""What this project uses of Optuna's Gaussian process that Optuna does not promise to keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pytest
import torch
from optuna._gp import acqf
from optuna._gp.optim_mixed import optimize_acqf_mixed
from optuna._gp.search_space import SearchSpace
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import GPSampler, RandomSampler
from optuna.trial import create_trial
from threadpoolctl import threadpool_limits

from trainables.runtime.internals import optuna_gp
from trainables.runtime.internals.optuna_gp import Improvement, Model

SPACE: dict[str, BaseDistribution] = {"x": FloatDistribution(0.0, 1.0), "choice": CategoricalDistribution([8, 16])}
KNOWN: list[dict[str, Any]] = [
    {"x": x, "choice": choice} for x, choice in ((0.1, 8), (0.3, 16), (0.6, 8), (0.9, 16), (0.45, 8))
]
SCORES = np.array([[-((params["x"] - 0.5) ** 2)] for params in KNOWN])


def model(kernels: list[list[float]] | None = None, *, fit: bool = True) -> Model:
    return Model(SPACE, KNOWN, SCORES, kernels, fit=fit)


def test_it_proposes_near_what_gpsampler_does() -> None:
    study = optuna.create_study(sampler=GPSampler(seed=0, n_startup_trials=3), direction="maximize")
    for params, (score,) in zip(KNOWN, SCORES, strict=True):
        study.add_trial(create_trial(value=score, params=params, distributions=SPACE))
    theirs, own = study.ask(SPACE).params, model().proposal([], np.random.RandomState(0))
    assert own == {"x": pytest.approx(theirs["x"], abs=0.02), "choice": theirs["choice"]}


def test_kernels_are_taken_as_they_are_or_fitted_further() -> None:
    fitted = model().kernels
    assert model(fitted, fit=False).kernels == fitted
    other = [[2.0] * len(fitted[0])]
    assert model(other, fit=False).kernels == other
    np.testing.assert_allclose(model(other).kernels, fitted, rtol=0.2)


def test_what_a_candidate_costs_is_taken_off_what_is_expected_of_it() -> None:
    np.testing.assert_allclose(model().inputs[:2], [[0.1, 0], [0.3, 1]])
    for sign, x, choice in ((1e3, 0, 8), (-1e3, 1, 16)):
        cost = lambda at, sign=sign: sign * (at[..., 0] + at[..., 1])  # noqa: E731
        found = model().proposal([], np.random.RandomState(0), cost)
        assert found == {"x": pytest.approx(x, abs=1e-2), "choice": choice}


def test_beside_running_trials_the_improvement_is_optunas(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = model()
    running = [{"x": 0.5, "choice": 8}, {"x": 0.2, "choice": 16}]
    ours = fitted._expectation(running, np.random.RandomState(0))
    assert isinstance(ours, Improvement)
    points = torch.rand(20, 2, dtype=torch.float64)
    torch.testing.assert_close(ours.eval_acqf(points), acqf.qLogEI.eval_acqf(ours, points))


@pytest.mark.parametrize("seed", range(3))
def test_choices_promise_as_much_as_those_of_optuna(seed: int) -> None:
    choices = {name: CategoricalDistribution([*range(6)]) for name in "abcd"}
    numbers = {"layers": IntDistribution(1, 12), "width": IntDistribution(16, 1024, log=True)}
    space: dict[str, BaseDistribution] = {"x": FloatDistribution(0.0, 1.0), **numbers, **choices}
    study = optuna.create_study(sampler=RandomSampler(seed=seed))
    trials = [study.ask(space).params for _ in range(100)]
    best = {"x": 0.5, "layers": 9, "width": 200, "a": 3, "b": 1, "c": 2, "d": 0}
    scores = [-sum(abs(trial[name] - best[name]) / best.get(name, 1) if name in numbers else
                   abs(trial[name] - best[name]) / 5 for name in space) for trial in trials]  # fmt: skip
    fitted = Model(space, trials, np.array([scores]).T, None, fit=True)
    function = fitted._expectation(trials[:3], np.random.RandomState(0))
    function.search_space = SearchSpace(space)
    with threadpool_limits(1):  # beside other work, two threads wait for each other in busy loops
        _, promise = optimize_acqf_mixed(function, rng=np.random.RandomState(0))
        found = fitted.proposal(trials[:3], np.random.RandomState(0))
    assert function.eval_acqf_no_grad(fitted._scaled([found])).item() > promise - 0.2


def test_several_objectives_look_for_the_front() -> None:
    scores = np.array([[-((p["x"] - 0.3) ** 2), -((p["x"] - 0.7) ** 2)] for p in KNOWN])
    for running in ([], [{"x": 0.5, "choice": 8}]):
        found = Model(SPACE, KNOWN, scores, None, fit=True).proposal(running, np.random.RandomState(0))
        assert 0.2 < found["x"] < 0.8
    assert optuna_gp.ASCENTS >= 2


def test_a_kernel_that_does_not_suit_the_trials_is_fitted() -> None:
    flat = [[1e-12, 1e-12, 1e12, 1e-6]]  # all trials alike and no noise to speak of: its matrix has no Cholesky factor
    np.testing.assert_allclose(model(flat, fit=False).kernels, model().kernels, rtol=0.2)
