"""What a new trial is expected to add to what there is: to the best score, or to the volume that a front dominates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from gaudi_tune.sweep.search.gaussian_process.process import Array, Outlook, Process

Promise: TypeAlias = Callable[[Array], tuple[Array, Callable[[], Array]]]
"""Takes configurations, (configurations, columns), and returns the logarithm of what each is expected to add,
(configurations,), and what gives its derivatives, (configurations, columns)."""

CASES = 32
"""Of what running trials may give."""
CASES_OF_FRONT = 256
"""With several objectives: of what a candidate may give, too, and of the direction in which the front grows."""
FAR = -25.0
"""Deviations below the best from which on the usual formula loses its digits."""
BELOW = 0.1
"""By how much of the scores' range the corner from which volume counts is below the worst."""
NOTHING = 1e-12
"""What a candidate adds at least, so that its logarithm is finite."""


def of_best(process: Process, running: Array, random: np.random.Generator) -> Promise:
    """Return what gives the improvement over the best score that running trials and the candidate are expected to make.

    That of the running trials is the same for all candidates. The more it is, the more does the time of a candidate
    count beside what the candidate adds.
    """
    cases = CASES if len(running) else 1
    outlook = Outlook(process, running, random.standard_normal((cases, len(running))))
    best = np.maximum(process.scores.max(), outlook.supposed.max(axis=1, initial=-math.inf))
    gain = (best - process.scores.max()).mean()
    without = math.log(gain) if gain > 0 else -math.inf

    def promise(points: Array) -> tuple[Array, Callable[[], Array]]:
        means, deviations, slopes = outlook.of(points)
        above = (means - best) / deviations[:, None]
        logs = log_excess(above)
        each = logs + np.log(deviations)[:, None]
        most = each.max(axis=1, keepdims=True)
        parts = np.exp(each - most)
        sums = parts.sum(axis=1, keepdims=True)
        added = (most + np.log(sums / cases))[:, 0]
        promises = np.logaddexp(added, without)

        def derivatives() -> Array:
            shares = parts / sums / deviations[:, None]  # of each case
            by_means = shares * np.exp(log_ndtr(above) - logs)
            by_deviations = (shares * np.exp(_log_density(above) - logs)).sum(axis=1)
            return np.exp(added - promises)[:, None] * slopes(by_means, by_deviations)

        return promises, derivatives

    return promise


def log_excess(above: Array) -> Array:
    """Return the logarithm of how far a normal number is expected to be above 0, counted as 0 below, by its mean; its
    deviation is 1 (Ament et al., 2023)."""
    logs = np.log(np.maximum(above * ndtr(above) + np.exp(_log_density(above)), 1e-300))
    if (far := above < FAR).any():
        low = above[far]
        logs[far] = _log_density(low) + np.log1p(math.sqrt(math.pi / 2) * low * erfcx(-low / math.sqrt(2)))
    return np.asarray(logs)


def _log_density(above: Array) -> Array:
    return -np.square(above) / 2 - math.log(2 * math.pi) / 2


def of_front(processes: Sequence[Process], running: Array, random: np.random.Generator) -> Promise:
    """Return what gives the growth of the volume that the front dominates, over points that running trials may reach.

    That volume is the mean, over random directions, of the power of how far the front reaches in each (Zhang and
    Golovin, 2020), up to a factor. So each case has a direction, and for each objective a normal number of a candidate.
    """
    objectives = len(processes)
    scores = np.stack([process.scores for process in processes], axis=-1)
    corner = scores.min(axis=0) - BELOW * np.ptp(scores, axis=0)
    directions = np.abs(random.standard_normal((CASES_OF_FRONT, objectives)))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    normal = random.standard_normal((CASES_OF_FRONT, objectives))
    outlooks = [
        Outlook(process, running, random.standard_normal((CASES_OF_FRONT, len(running)))) for process in processes
    ]

    def reach(points: Array) -> Array:
        """(..., cases, objectives)"""
        return np.maximum((points - corner) / directions, 0.0)

    known = reach(scores[:, None]).min(axis=-1).max(axis=0)
    supposed = reach(np.stack([outlook.supposed.T for outlook in outlooks], axis=-1)).min(axis=-1)
    best = np.maximum(known, supposed.max(axis=0, initial=0.0)) ** objectives

    def promise(points: Array) -> tuple[Array, Callable[[], Array]]:
        expected = [outlook.of(points) for outlook in outlooks]
        values = np.stack([m + d[:, None] * normal[:, i] for i, (m, d, _) in enumerate(expected)], axis=-1)
        reached = reach(values)
        least = reached.min(axis=-1)
        gains = np.maximum(least**objectives - best, 0.0)
        sums = gains.sum(axis=1) + NOTHING

        def derivatives() -> Array:
            by_least = np.where(gains > 0, objectives * least ** (objectives - 1), 0.0) / sums[:, None]
            found = np.zeros_like(points)
            for i, (_, _, slopes) in enumerate(expected):
                by_means = np.where(reached.argmin(axis=-1) == i, by_least / directions[:, i], 0.0)
                found += slopes(by_means, by_means @ normal[:, i])
            return found

        return np.log(sums / CASES_OF_FRONT), derivatives

    return promise


def for_its_time(promise: Promise, costs: Array | None) -> Promise:
    """Return the promise less what each column of a configuration costs, (columns,); None: as it is."""
    if costs is None:
        return promise

    def less(points: Array) -> tuple[Array, Callable[[], Array]]:
        promises, derivatives = promise(points)
        return promises - points @ costs, lambda: derivatives() - costs

    return less
