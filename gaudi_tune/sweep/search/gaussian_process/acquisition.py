"""Acquisition functions: what a new trial is expected to add to the best score, or to the hypervolume of the front."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from scipy.special import erfcx, logsumexp, ndtr

from gaudi_tune.sweep.search.gaussian_process.process import Array, GaussianProcess, Posterior

Acquisition: TypeAlias = Callable[[Array], Array]
"""Takes configurations, (configurations, columns), and returns their acquisition values, (configurations,), which are
logarithms of an expected improvement."""

N_FANTASIES = 32
"""How many sets of scores are drawn for the running trials, with one objective."""
N_DIRECTIONS = 256
"""How many random directions approximate the hypervolume; each has its own draw of the running trials' scores and of
the candidate's."""
ASYMPTOTIC_BELOW = -25.0
"""Standard scores below this one take an asymptotic formula, for the usual one loses its digits there."""
REFERENCE_POINT_MARGIN = 0.1
"""The hypervolume's reference point lies this share of each objective's range below the worst score."""
MIN_IMPROVEMENT = 1e-12
"""An expected improvement is never less, so that its logarithm is finite."""


def log_expected_improvement(process: GaussianProcess, running: Array, generator: np.random.Generator) -> Acquisition:
    """Return the logarithm of the expected improvement over the best score by a candidate and the running trials.

    The part that the running trials contribute is the same for all candidates. The larger it is, the less do the
    candidates differ, and the more does what they cost decide.

    Args:
        process: The process, fitted to the scores.
        running: Configurations of trials that have no score yet; (running, columns).
        generator: The source of the fantasies.
    """
    n_fantasies = N_FANTASIES if len(running) else 1
    posterior = Posterior(process, running, generator.standard_normal((n_fantasies, len(running))))
    best_scores = np.maximum(process.scores.max(), posterior.fantasies.max(axis=1, initial=-math.inf))
    improvement_of_running = (best_scores - process.scores.max()).mean()
    log_improvement_of_running = math.log(improvement_of_running) if improvement_of_running > 0 else -math.inf

    def acquisition(rows: Array) -> Array:
        means, deviations = posterior.predict(rows)
        log_excesses = log_expected_excess((means - best_scores) / deviations[:, None])
        log_improvement = logsumexp(log_excesses + np.log(deviations)[:, None], axis=1) - math.log(n_fantasies)
        return np.logaddexp(log_improvement, log_improvement_of_running)

    return acquisition


def log_expected_excess(means: Array) -> Array:
    """Return the logarithm of the expectation of max(0, x) for normal x with these means and deviation 1.

    The formulas are those of Ament et al. (2023), "Unexpected Improvements to Expected Improvement".
    """
    logs = np.log(np.maximum(means * ndtr(means) + np.exp(_log_density(means)), 1e-300))
    is_low = means < ASYMPTOTIC_BELOW
    if is_low.any():
        low = means[is_low]
        logs[is_low] = _log_density(low) + np.log1p(math.sqrt(math.pi / 2) * low * erfcx(-low / math.sqrt(2)))
    return np.asarray(logs)


def _log_density(values: Array) -> Array:
    """Return the logarithm of the standard normal density."""
    return -np.square(values) / 2 - math.log(2 * math.pi) / 2


def log_hypervolume_improvement(
    processes: Sequence[GaussianProcess], running: Array, generator: np.random.Generator
) -> Acquisition:
    """Return the logarithm of the expected growth of the hypervolume that the front dominates, up to a constant.

    The hypervolume is, up to a factor, the mean over random directions of a power of the distance from the reference
    point to the front in that direction (Zhang and Golovin, 2020, "Random Hypervolume Scalarizations"). The front
    includes what the running trials are supposed to reach.

    Args:
        processes: One process for each objective, all fitted to the same trials.
        running: Configurations of trials that have no scores yet; (running, columns).
        generator: The source of the directions and the draws.
    """
    n_objectives = len(processes)
    scores = np.stack([process.scores for process in processes], axis=-1)
    reference_point = scores.min(axis=0) - REFERENCE_POINT_MARGIN * np.ptp(scores, axis=0)
    directions = np.abs(generator.standard_normal((N_DIRECTIONS, n_objectives)))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    noise = generator.standard_normal((N_DIRECTIONS, n_objectives))
    posteriors = [
        Posterior(process, running, generator.standard_normal((N_DIRECTIONS, len(running)))) for process in processes
    ]

    def distances(points: Array) -> Array:
        """Return how far points get in each direction and objective; the least over objectives is what counts."""
        return np.maximum((points - reference_point) / directions, 0.0)

    reached_by_trials = distances(scores[:, None]).min(axis=-1).max(axis=0)
    fantasies = np.stack([posterior.fantasies.T for posterior in posteriors], axis=-1)
    reached_by_running = distances(fantasies).min(axis=-1).max(axis=0, initial=0.0)
    front = np.maximum(reached_by_trials, reached_by_running) ** n_objectives

    def acquisition(rows: Array) -> Array:
        predictions = [posterior.predict(rows) for posterior in posteriors]
        draws = [
            means + deviations[:, None] * noise[:, objective]
            for objective, (means, deviations) in enumerate(predictions)
        ]
        distance = distances(np.stack(draws, axis=-1)).min(axis=-1)
        return np.log(np.maximum(distance**n_objectives - front, 0.0).mean(axis=1) + MIN_IMPROVEMENT)

    return acquisition


def minus_costs(acquisition: Acquisition, costs: Array | None) -> Acquisition:
    """Return the acquisition function less ``costs`` for each unit of a column, (columns,); None: as it is."""
    if costs is None:
        return acquisition
    return lambda rows: acquisition(rows) - rows @ costs
