from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from gaudi_tune.sweep.search.gaussian_process.process import Array, GaussianProcess, Posterior

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.random((40, 3))
PARAMETER_OF_COLUMN = np.array([0, 1, 2])
SCORES = np.sin(5 * INPUTS[:, 0]) + INPUTS[:, 1] + 0.1 * RANDOM.standard_normal(40)
SCORES = (SCORES - SCORES.mean()) / SCORES.std()
KERNEL = [4.0, 1.0, 0.1, 2.0, 0.05]
NONE = np.empty((0, 3))


def process(kernel: list[float] | None = KERNEL, *, fit: bool = False) -> GaussianProcess:
    return GaussianProcess(INPUTS, PARAMETER_OF_COLUMN, SCORES, kernel, fit=fit)


def posterior(running: Array = NONE, fantasies: int = 1) -> Posterior:
    return Posterior(process(), running, np.random.default_rng(0).standard_normal((fantasies, len(running))))


def scikit_learn_process() -> GaussianProcessRegressor:
    """The same process; its noise is that of KERNEL and the little that is always there."""
    kernel = ConstantKernel(KERNEL[3]) * Matern(length_scale=np.power(KERNEL[:3], -0.5), nu=2.5)
    return GaussianProcessRegressor(kernel, alpha=KERNEL[4] + 1e-6, optimizer=None).fit(INPUTS, SCORES)


def test_it_expects_what_scikit_learn_expects() -> None:
    points = np.random.default_rng(1).random((20, 3))
    means, deviations = posterior().predict(points)
    their_means, their_deviations = scikit_learn_process().predict(points, return_std=True)
    np.testing.assert_allclose(means[:, 0], their_means, rtol=1e-6)
    np.testing.assert_allclose(deviations, their_deviations, rtol=1e-6)


def test_running_trials_give_what_the_process_may_give_there_and_then_it_is_known() -> None:
    running = np.random.default_rng(1).random((3, 3))
    beside = posterior(running, fantasies=20_000)
    means, covariance = scikit_learn_process().predict(running, return_cov=True)
    np.testing.assert_allclose(beside.fantasies.mean(axis=0), means, atol=0.02)
    np.testing.assert_allclose(np.cov(beside.fantasies.T), covariance, atol=0.02)
    then, deviations = beside.predict(running)
    np.testing.assert_allclose(then.T, beside.fantasies, atol=1e-3)
    assert deviations.max() < 0.01


def test_a_kernel_is_fitted_to_the_likeliest_or_taken_as_it_is() -> None:
    assert process().kernel == pytest.approx(KERNEL)
    fitted = process(None, fit=True).kernel
    np.testing.assert_allclose(process(fit=True).kernel, fitted, rtol=0.1)
    assert fitted[0] > 10 * fitted[2], "the last number means nothing"

    def likelihood(kernel: list[float]) -> float:
        """By scikit-learn, with the priors of GPSampler."""
        inverse, scale, noise = np.array(kernel[:3]), kernel[3], kernel[4]
        prior = -0.1 * (1 / inverse + inverse).sum() + np.log(scale) - scale + 0.1 * np.log(noise) - 30 * noise
        rays = scikit_learn_process()
        rays.alpha = noise + 1e-6
        logs = np.log([scale, *np.power(inverse, -0.5)])
        return float(rays.fit(INPUTS, SCORES).log_marginal_likelihood(logs) + prior)

    best = likelihood(fitted)
    for place in range(5):
        for factor in (0.8, 1.25):
            assert likelihood([n * factor if i == place else n for i, n in enumerate(fitted)]) < best + 1e-3


def test_columns_of_one_hyperparameter_share_a_length() -> None:
    shared = GaussianProcess(INPUTS, np.array([0, 1, 1]), SCORES, None, fit=True)
    assert len(shared.kernel) == 4 and shared.length_scales[1] == shared.length_scales[2]


def test_a_kernel_that_no_matrix_bears_is_brought_into_its_bounds() -> None:
    flat = [1e-12, 1e-12, 1e-12, 1e12, 1e-300]
    means, deviations = Posterior(process(flat), NONE, np.empty((1, 0))).predict(INPUTS)
    assert np.isfinite(means).all() and np.isfinite(deviations).all()
