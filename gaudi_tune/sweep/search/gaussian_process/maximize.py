"""The search for the configuration with the highest acquisition value."""

from __future__ import annotations

import numpy as np

from gaudi_tune.sweep.search.gaussian_process.acquisition import Acquisition
from gaudi_tune.sweep.search.gaussian_process.process import Array
from gaudi_tune.sweep.search.gaussian_process.space import Space

N_CANDIDATES, N_STARTS = 256, 4  # random configurations, and how many of them are moved besides the best trials
STEPS = (0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01)  # how far the best are moved, in length scales
N_MOVED, N_MOVES = 3, 16  # how many of the best are moved with each step, and how often each
MAX_VALUE_CHANGES = 5  # of discrete hyperparameters, one after the other: each time the change that gains most


def maximize(
    acquisition: Acquisition, space: Space, best_rows: Array, length_scales: Array, generator: np.random.Generator
) -> Array:
    """Return the row with the highest acquisition value that was found.

    Continuous hyperparameters are moved at random, about half of them at once, with shorter and shorter steps, each
    time from the rows that are best by then. Afterwards the values of the discrete ones are tried.

    Args:
        acquisition: The function to maximize.
        space: The columns of a row and their values.
        best_rows: Rows to begin with besides random ones, such as that of the best trial; (rows, columns).
        length_scales: The length scale of each column.
        generator: The source of the random candidates and moves.
    """
    candidates = space.random_rows(N_CANDIDATES, generator)
    rows = np.concatenate([best_rows, candidates[np.argsort(-acquisition(candidates))[:N_STARTS]]])
    values = acquisition(rows)
    for step in np.outer(STEPS, np.minimum(length_scales, 1.0) * space.continuous):
        starts = np.repeat(rows[np.argsort(-values)[:N_MOVED]], N_MOVES, axis=0)
        moves = generator.standard_normal(starts.shape) * (generator.random(starts.shape) < 0.5)
        moved = np.clip(starts + step * moves, 0, 1)
        rows, values = np.concatenate([rows, moved]), np.concatenate([values, acquisition(moved)])
    return _with_best_discrete_values(acquisition, space, rows[values.argmax()], values.max())


def _with_best_discrete_values(acquisition: Acquisition, space: Space, row: Array, value: float) -> Array:
    """Return the row with discrete hyperparameters changed, one at a time, while that raises its acquisition value."""
    n_variants = sum(len(choices) for _, choices in space.discrete)
    for _ in range(MAX_VALUE_CHANGES if n_variants else 0):
        variants = np.repeat(row[None], n_variants, axis=0)
        begin = 0
        for columns, choices in space.discrete:
            variants[begin : begin + len(choices), columns] = choices
            begin += len(choices)
        values = acquisition(variants)
        if values.max() <= value:
            break
        row, value = variants[values.argmax()], values.max()
    return row
