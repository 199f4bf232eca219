"""A Gaussian process: what the scores of trials say about configurations that no trial has had."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize

Array: TypeAlias = npt.NDArray[np.float64]
KernelParameters: TypeAlias = list[float]
"""The inverse squared length scale of each hyperparameter, then the signal variance, then the noise variance."""

MIN_NOISE = 1e-6
"""The noise variance that every process has; scores have a variance of 1."""
LOG_BOUNDS = (-9.0, 7.0)
"""Bounds of the logarithms of kernel parameters. Within them a matrix of hundreds of trials can be factored."""
GRADIENT_TOLERANCE = 1e-2
"""The gradient of the likelihood at which a fit ends, as in Optuna's GPSampler."""
FANTASY_NOISE = 1e-6
"""The noise variance of a running trial's fantasy, as a share of the signal variance."""
MIN_VARIANCE = 1e-12
"""The least variance of a prediction, which would be 0 where a trial has been."""


class GaussianProcess:
    """Scores as a function of the configuration, with Matérn's kernel (5/2) and a length scale for each hyperparameter.

    The priors of the kernel parameters are those of Optuna's GPSampler (5.0).
    """

    def __init__(
        self,
        inputs: Array,
        parameter_of_column: npt.NDArray[np.intp],
        scores: Array,
        kernel: KernelParameters | None,
        *,
        fit: bool,
    ) -> None:
        """Fit the kernel, beginning with the one given, or take that as it is.

        Args:
            inputs: Configurations, every number from 0 to 1; (trials, columns).
            parameter_of_column: The index of the hyperparameter to which each column belongs.
            scores: The trials' scores, more being better, with mean 0 and variance 1.
            kernel: The kernel to begin with, or None.
            fit: Whether to fit it; without a kernel one is fitted in any case.
        """
        self.inputs, self.parameter_of_column, self.scores = inputs, parameter_of_column, scores
        if kernel is None:
            self._log_kernel = self._fit(np.zeros(parameter_of_column.max() + 3))
        else:
            start: Array = np.clip(np.log(kernel), *LOG_BOUNDS)
            self._log_kernel = self._fit(start) if fit else start
        self.signal, self.noise = np.exp(self._log_kernel[-2:]) + np.array([0.0, MIN_NOISE])
        self.length_scales: Array = np.exp(-self._log_kernel[parameter_of_column] / 2)
        """The length scale of each column."""

    @property
    def kernel(self) -> KernelParameters:
        """The kernel, as the next process may begin with it."""
        return np.exp(self._log_kernel).tolist()

    def _fit(self, start: Array) -> Array:
        """Return the logarithms of the kernel parameters with the highest posterior density near ``start``."""
        n_trials = len(self.inputs)
        pairs = np.tril_indices(n_trials, -1)
        n_parameters = self.parameter_of_column.max() + 1
        inputs_by_parameter = [self.inputs[:, self.parameter_of_column == i] for i in range(n_parameters)]
        distances = np.stack([_squared_distances(part, part)[pairs] for part in inputs_by_parameter], axis=1)

        def loss(log_kernel: Array) -> tuple[float, Array]:
            """Return the negative log density and its gradient."""
            inverse_squares, (signal, noise) = np.exp(log_kernel[:-2]), np.exp(log_kernel[-2:])
            correlations, slopes = matern(distances @ inverse_squares)
            covariance = np.diag(np.full(n_trials, signal + noise + MIN_NOISE))
            covariance[pairs] = signal * correlations
            factor = cho_factor(covariance, lower=True)
            weights = cho_solve(factor, self.scores)
            precision, _ = dpotri(factor[0], lower=1)  # only the lower half, as of the covariance
            log_likelihood = -np.log(np.diag(factor[0])).sum() - self.scores @ weights / 2
            log_prior = (
                -0.1 * (1 / inverse_squares + inverse_squares).sum()
                + log_kernel[-2] - signal + 0.1 * log_kernel[-1] - 30 * noise
            )  # fmt: skip
            # The gradient by the covariance's diagonal, which is the same for all trials, and by its other entries.
            by_diagonal = ((weights**2 - np.diag(precision)) / 2).sum()
            by_pairs = weights[pairs[0]] * weights[pairs[1]] - precision[pairs]
            gradient = np.empty_like(log_kernel)
            gradient[:-2] = signal * inverse_squares * ((by_pairs * slopes) @ distances) + 0.1 * (
                1 / inverse_squares - inverse_squares
            )
            gradient[-2] = signal * (by_diagonal + by_pairs @ correlations) + 1 - signal
            gradient[-1] = noise * by_diagonal + 0.1 - 30 * noise
            return -log_likelihood - log_prior, -gradient

        solution: Any = minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=[LOG_BOUNDS] * len(start),
            options={"gtol": GRADIENT_TOLERANCE},
        )  # fmt: skip
        return np.asarray(solution.x)


class Posterior:
    """What a process predicts of configurations, with several fantasies of the scores of running trials.

    A fantasy is one draw of these scores from the process. The process is then conditioned on it, as if the running
    trials had reported it, so that another proposal keeps away from them.
    """

    def __init__(self, process: GaussianProcess, running: Array, noise: Array) -> None:
        """Draw the fantasies.

        Args:
            process: The process of the trials that have scores.
            running: Configurations of trials that have no score yet; (running, columns).
            noise: Standard normal numbers, from which the fantasies are made; (fantasies, running).
        """
        self._length_scales, self._signal = process.length_scales, process.signal
        self._scaled_inputs: Array = np.concatenate([process.inputs, running]) / self._length_scales
        covariance = self._signal * matern(_squared_distances(self._scaled_inputs, self._scaled_inputs))[0]
        scored, unscored = slice(len(process.inputs)), slice(len(process.inputs), None)
        noises = np.repeat([process.noise, FANTASY_NOISE * self._signal], [len(process.inputs), len(running)])
        covariance[np.diag_indices(len(covariance))] += noises
        solved = cho_solve(cho_factor(covariance[scored, scored], lower=True), covariance[scored, unscored])
        covariance_of_running = covariance[unscored, unscored] - covariance[unscored, scored] @ solved
        self.fantasies: Array = process.scores @ solved + noise @ np.linalg.cholesky(covariance_of_running).T
        """The scores of the running trials in each fantasy; (fantasies, running)."""
        self._precision = cho_solve(cho_factor(covariance, lower=True), np.eye(len(covariance)))
        scores = np.concatenate([np.repeat(process.scores[None], len(noise), axis=0), self.fantasies], axis=1)
        self._weights: Array = self._precision @ scores.T

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """Predict the scores of configurations, (configurations, columns).

        Returns:
            The means with each fantasy, (configurations, fantasies); and the standard deviations, which are the same
            with all fantasies, (configurations,).
        """
        distances = _squared_distances(rows / self._length_scales, self._scaled_inputs)
        covariance = self._signal * matern(distances)[0]
        variances = self._signal - np.einsum("ij,ij->i", covariance, covariance @ self._precision)
        return covariance @ self._weights, np.sqrt(np.maximum(variances, MIN_VARIANCE))


def matern(squared_distances: Array) -> tuple[Array, Array]:
    """Return the Matérn kernel (5/2) of squared distances in length scales, and its derivative by these squares."""
    scaled_distances = np.sqrt(5 * squared_distances)
    decay = np.exp(-scaled_distances)
    return (5 / 3 * squared_distances + scaled_distances + 1) * decay, -5 / 6 * (scaled_distances + 1) * decay


def _squared_distances(points: Array, other_points: Array) -> Array:
    """Return the squared distance from each point to each other point; (points, other points)."""
    squares, other_squares = np.square(points).sum(axis=1), np.square(other_points).sum(axis=1)
    return np.maximum(squares[:, None] + other_squares - 2 * points @ other_points.T, 0.0)
