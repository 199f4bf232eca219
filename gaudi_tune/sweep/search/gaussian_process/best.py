"""Where in a space a promise is highest."""

from __future__ import annotations

import numpy as np

from gaudi_tune.sweep.search.gaussian_process.improvement import Promise
from gaudi_tune.sweep.search.gaussian_process.process import Array
from gaudi_tune.sweep.search.gaussian_process.space import Space

CANDIDATES = 256
"""Random configurations among which it is looked for."""
ASCENTS = 4
"""From how many of them, besides the best trials, it goes uphill."""
STEPS = 12
"""Of an ascent, at most."""
FIRST, LAST = 0.3, 0.01
"""Length of its first step, and the one at which it ends, in length scales."""
LONGER, SHORTER = 1.6, 0.4
"""The next step after one uphill, and after one downhill, which is not taken."""
CHANGES = 5
"""How often, at most, one choice of what was found is changed: the one that gains most."""


def best_row(promise: Promise, space: Space, known: Array, lengths: Array, random: np.random.Generator) -> Array:
    """Return the row that promises most.

    Args:
        promise: What is promised.
        space: Where to look.
        known: Rows to begin with besides random ones, such as that of the best trial; (rows, columns).
        lengths: The length scale of each column.
        random: Draws the candidates.
    """
    drawn = space.drawn(CANDIDATES, random)
    promises, _ = promise(drawn)
    begin = np.concatenate([known, drawn[np.argsort(-promises)[:ASCENTS]]])
    reached, promises = _uphill(promise, begin, np.minimum(lengths, 1.0) * space.continuous)
    row, most = reached[promises.argmax()], promises.max()
    return _with_other_values(promise, space, row, most)


def _uphill(promise: Promise, rows: Array, scale: Array) -> tuple[Array, Array]:
    """Go from each row in the direction in which the promise grows fastest, in length scales, as long as it grows."""
    promises, derivatives = promise(rows)
    slopes = derivatives()
    step = np.full(len(rows), FIRST)
    for _ in range(STEPS):
        outside = np.where(slopes > 0, rows >= 1, rows <= 0)
        uphill = np.where(outside, 0.0, slopes) * scale
        steepness = np.linalg.norm(uphill, axis=1)
        if not ((step > LAST) & (steepness > 0)).any():
            break
        moved = np.clip(rows + (step / np.maximum(steepness, 1e-300))[:, None] * uphill * scale, 0, 1)
        found, derivatives = promise(moved)
        better = found > promises
        rows, slopes = np.where(better[:, None], moved, rows), np.where(better[:, None], derivatives(), slopes)
        promises, step = np.where(better, found, promises), step * np.where(better, LONGER, SHORTER)
    return rows, promises


def _with_other_values(promise: Promise, space: Space, row: Array, most: float) -> Array:
    """Return the row with hyperparameters of few values changed, one at a time, while that promises more."""
    for _ in range(CHANGES if space.few else 0):
        changed = np.repeat(row[None], sum(len(values) for _, values in space.few), axis=0)
        place = 0
        for columns, values in space.few:
            changed[place : place + len(values), columns] = values
            place += len(values)
        promises, _ = promise(changed)
        if promises.max() <= most:
            break
        row, most = changed[promises.argmax()], promises.max()
    return row
