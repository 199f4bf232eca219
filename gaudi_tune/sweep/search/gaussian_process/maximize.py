"""The search for the configuration with the highest acquisition value."""

from __future__ import annotations

import numpy as np

from gaudi_tune.sweep.search.gaussian_process.acquisition import Acquisition
from gaudi_tune.sweep.search.gaussian_process.process import Array
from gaudi_tune.sweep.search.gaussian_process.space import Space

N_CANDIDATES = 256  # random configurations, of which the best become restarts
N_RESTARTS = 4  # gradient ascents from random configurations, besides those from the best trials
MAX_ASCENT_STEPS = 12
FIRST_STEP, MIN_STEP = 0.3, 0.01  # in length scales; an ascent ends once its step is shorter
STEP_GROWTH, STEP_SHRINKAGE = 1.6, 0.4  # after a step that led uphill, and after one that did not and is taken back
MAX_VALUE_CHANGES = 5  # of discrete hyperparameters, one after the other: each time the change that gains most


def maximize(
    acquisition: Acquisition, space: Space, best_rows: Array, length_scales: Array, generator: np.random.Generator
) -> Array:
    """Return the row with the highest acquisition value that was found.

    Gradient ascents search the continuous hyperparameters. Afterwards the values of the discrete ones are tried.

    Args:
        acquisition: The function to maximize.
        space: The columns of a row and their values.
        best_rows: Rows from which ascents start besides random ones, such as that of the best trial; (rows, columns).
        length_scales: The length scale of each column.
        generator: The source of the random candidates.
    """
    candidates = space.random_rows(N_CANDIDATES, generator)
    values, _ = acquisition(candidates)
    starts = np.concatenate([best_rows, candidates[np.argsort(-values)[:N_RESTARTS]]])
    rows, values = _ascend(acquisition, starts, np.minimum(length_scales, 1.0) * space.continuous)
    return _with_best_discrete_values(acquisition, space, rows[values.argmax()], values.max())


def _ascend(acquisition: Acquisition, rows: Array, scales: Array) -> tuple[Array, Array]:
    """Climb from each row along the gradient; return the rows that were reached and their acquisition values.

    Columns are measured in their ``scales``; one with scale 0 stays as it is. A row leaves the range of no column.
    """
    values, make_gradients = acquisition(rows)
    gradients = make_gradients()
    step_sizes = np.full(len(rows), FIRST_STEP)
    for _ in range(MAX_ASCENT_STEPS):
        leads_outside = np.where(gradients > 0, rows >= 1, rows <= 0)
        directions = np.where(leads_outside, 0.0, gradients) * scales
        steepness = np.linalg.norm(directions, axis=1)
        if not ((step_sizes > MIN_STEP) & (steepness > 0)).any():
            break
        moves = (step_sizes / np.maximum(steepness, 1e-300))[:, None] * directions * scales
        new_rows = np.clip(rows + moves, 0, 1)
        new_values, make_gradients = acquisition(new_rows)
        improved = new_values > values
        rows = np.where(improved[:, None], new_rows, rows)
        gradients = np.where(improved[:, None], make_gradients(), gradients)
        values = np.where(improved, new_values, values)
        step_sizes = step_sizes * np.where(improved, STEP_GROWTH, STEP_SHRINKAGE)
    return rows, values


def _with_best_discrete_values(acquisition: Acquisition, space: Space, row: Array, value: float) -> Array:
    """Return the row with discrete hyperparameters changed, one at a time, while that raises its acquisition value."""
    n_variants = sum(len(choices) for _, choices in space.discrete)
    for _ in range(MAX_VALUE_CHANGES if n_variants else 0):
        variants = np.repeat(row[None], n_variants, axis=0)
        begin = 0
        for columns, choices in space.discrete:
            variants[begin : begin + len(choices), columns] = choices
            begin += len(choices)
        values, _ = acquisition(variants)
        if values.max() <= value:
            break
        row, value = variants[values.argmax()], values.max()
    return row
