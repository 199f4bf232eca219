"""A Gaussian process: what the scores of trials say of configurations that none has had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize

Array: TypeAlias = npt.NDArray[np.float64]
Kernel: TypeAlias = list[float]
"""Inverse squared length scale of each hyperparameter, then the scale, then the variance of the noise."""
Slopes: TypeAlias = Callable[[Array, Array], Array]

LEAST_NOISE = 1e-6
"""Variance of the noise that is always there; scores have a variance of 1."""
BOUNDS = (-9.0, 7.0)
"""Of the logarithms of a kernel's numbers. Within them a matrix of hundreds of trials can be factored."""
FLAT_ENOUGH = 1e-2
"""Slope of the likelihood at which a fit ends, as in GPSampler."""
EXACT = 1e-6
"""Variance of what a running trial is supposed to give, as a share of the scale."""
LEAST_VARIANCE = 1e-12
"""Of a score, also where a trial has been."""


class Process:
    """Scores as a function of the configuration, with Matérn's kernel (5/2) and a length scale for each hyperparameter.

    The priors of the kernel's numbers are those of Optuna's GPSampler (5.0).
    """

    def __init__(
        self, inputs: Array, of: npt.NDArray[np.intp], scores: Array, kernel: Kernel | None, *, fit: bool
    ) -> None:
        """Fit the kernel, beginning with the given one, or take that as it is.

        Args:
            inputs: Configurations, every number from 0 to 1; (trials, columns).
            of: To which hyperparameter each column belongs.
            scores: Of the trials, more being better, with mean 0 and variance 1.
            kernel: None where there is none to begin with.
            fit: False: a kernel that is given is not fitted.
        """
        self.inputs, self.of, self.scores = inputs, of, scores
        start = np.zeros(of.max() + 3) if kernel is None else np.clip(np.log(kernel), *BOUNDS)
        self._logs: Array = start if kernel is not None and not fit else self._fitted(start)
        self.scale, self.noise = np.exp(self._logs[-2:]) + np.array([0.0, LEAST_NOISE])
        self.lengths: Array = np.exp(-self._logs[of] / 2)
        """The length scale of each column."""

    @property
    def kernel(self) -> Kernel:
        """The kernel, as the next process may begin with it."""
        return np.exp(self._logs).tolist()

    def _fitted(self, start: Array) -> Array:
        """Return the logarithms of the most likely kernel near this one."""
        trials = len(self.inputs)
        pairs = np.tril_indices(trials, -1)
        columns = [self.inputs[:, self.of == i] for i in range(self.of.max() + 1)]
        apart = np.stack([_squares(own, own)[pairs] for own in columns], axis=1)

        def loss(logs: Array) -> tuple[float, Array]:
            inverse, (scale, noise) = np.exp(logs[:-2]), np.exp(logs[-2:])
            alike, slope = matern(apart @ inverse)
            covariance = np.diag(np.full(trials, scale + noise + LEAST_NOISE))
            covariance[pairs] = scale * alike
            factor = cho_factor(covariance, lower=True)
            weights = cho_solve(factor, self.scores)
            precision, _ = dpotri(factor[0], lower=1)  # its lower half, like that of the covariance
            by_own = ((weights**2 - np.diag(precision)) / 2).sum()
            by_pairs = weights[pairs[0]] * weights[pairs[1]] - precision[pairs]
            likelihood = -np.log(np.diag(factor[0])).sum() - self.scores @ weights / 2
            prior = -0.1 * (1 / inverse + inverse).sum() + logs[-2] - scale + 0.1 * logs[-1] - 30 * noise
            by_logs = np.empty_like(logs)
            by_logs[:-2] = scale * inverse * ((by_pairs * slope) @ apart) + 0.1 * (1 / inverse - inverse)
            by_logs[-2] = scale * (by_own + by_pairs @ alike) + 1 - scale
            by_logs[-1] = noise * by_own + 0.1 - 30 * noise
            return -likelihood - prior, -by_logs

        options = {"gtol": FLAT_ENOUGH}
        found: Any = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[BOUNDS] * len(start), options=options)
        return np.asarray(found.x)


class Outlook:
    """What a process expects of configurations, in each of several cases of what running trials give."""

    def __init__(self, process: Process, running: Array, normal: Array) -> None:
        """Draw the cases.

        Args:
            process: Of the trials that have scores.
            running: Configurations of trials that have none yet; (running, columns).
            normal: Numbers of a normal distribution; (cases, running).
        """
        self._lengths, self._scale = process.lengths, process.scale
        self._known: Array = np.concatenate([process.inputs, running]) / self._lengths
        covariance = self._scale * matern(_squares(self._known, self._known))[0]
        own, new = slice(len(process.inputs)), slice(len(process.inputs), None)
        noise = np.repeat([process.noise, EXACT * self._scale], [len(process.inputs), len(running)])
        covariance[np.diag_indices(len(covariance))] += noise
        solved = cho_solve(cho_factor(covariance[own, own], lower=True), covariance[own, new])
        spread = covariance[new, new] - covariance[new, own] @ solved
        self.supposed: Array = process.scores @ solved + normal @ np.linalg.cholesky(spread).T
        """What the running trials give; (cases, running)."""
        self._inverse = cho_solve(cho_factor(covariance, lower=True), np.eye(len(covariance)))
        given = np.concatenate([np.repeat(process.scores[None], len(normal), axis=0), self.supposed], axis=1)
        self._weights: Array = self._inverse @ given.T

    def of(self, points: Array) -> tuple[Array, Array, Slopes]:
        """Return what is expected of configurations; (configurations, columns).

        Returns:
            The mean in each case, (configurations, cases); the standard deviation, the same in all cases,
            (configurations,); and what gives the derivatives by the configurations, (configurations, columns), of
            something of which it takes those by the means and the deviations.
        """
        scaled = points / self._lengths
        alike, slope = matern(_squares(scaled, self._known))
        covariance = self._scale * alike
        shares = covariance @ self._inverse
        deviations = np.sqrt(np.maximum(self._scale - np.einsum("ij,ij->i", covariance, shares), LEAST_VARIANCE))

        def slopes(by_means: Array, by_deviations: Array) -> Array:
            by_covariance = by_means @ self._weights.T - (by_deviations / deviations)[:, None] * shares
            by_squares = self._scale * slope * by_covariance
            return 2 * (scaled * by_squares.sum(axis=1, keepdims=True) - by_squares @ self._known) / self._lengths

        return covariance @ self._weights, deviations, slopes


def matern(squares: Array) -> tuple[Array, Array]:
    """Return the Matern kernel (5/2) of squared distances in length scales, and its derivative by these squares."""
    apart = np.sqrt(5 * squares)
    falls = np.exp(-apart)
    return (5 / 3 * squares + apart + 1) * falls, -5 / 6 * (apart + 1) * falls


def _squares(points: Array, others: Array) -> Array:
    """Return the squared distance of each point from each other."""
    of_points, of_others = np.square(points).sum(axis=1), np.square(others).sum(axis=1)
    return np.maximum(of_points[:, None] + of_others - 2 * points @ others.T, 0.0)
