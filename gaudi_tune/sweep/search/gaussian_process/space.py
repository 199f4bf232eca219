"""Configurations as rows of numbers from 0 to 1, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gaudi_tune.define.ranges import nearest
from gaudi_tune.sweep.search.gaussian_process.process import Array

MAX_DISCRETE = 16
"""A number with more values than this is searched as if it were continuous, and rounded."""


class Space:
    """The columns of some hyperparameters.

    A number has one column, in which its range (or the logarithm of it) goes from 0 to 1. A choice has a column for
    each of its values, so that any two values are as far apart as the ends of a range.
    """

    def __init__(self, ranges: Mapping[str, BaseDistribution]) -> None:
        """Lay out the columns of the hyperparameters, given by name."""
        self._encodings = {
            name: _Choices(range_) if isinstance(range_, CategoricalDistribution) else _Number(range_)
            for name, range_ in ranges.items()
        }
        widths = [encoding.width for encoding in self._encodings.values()]
        self._columns = [slice(end - width, end) for end, width in zip(np.cumsum(widths), widths, strict=True)]
        self.parameter_of_column: npt.NDArray[np.intp] = np.repeat(np.arange(len(ranges)), widths)
        """The index of the hyperparameter to which each column belongs."""
        self.discrete = [
            (columns, encoding.discrete_values)
            for columns, encoding in zip(self._columns, self._encodings.values(), strict=True)
            if encoding.discrete_values is not None
        ]
        """The columns of each hyperparameter with few values, and these values in them, (values, columns)."""
        self.continuous = np.ones(len(self.parameter_of_column))
        """1 for the column of a number with many values, else 0."""
        for columns, _ in self.discrete:
            self.continuous[columns] = 0

    def rows(self, configurations: Sequence[Mapping[str, Any]]) -> Array:
        """Return configurations as rows; (configurations, columns)."""
        parts = [
            encoding.rows([configuration[name] for configuration in configurations])
            for name, encoding in self._encodings.items()
        ]
        return np.concatenate(parts, axis=1)

    def configuration(self, row: Array) -> dict[str, Any]:
        """Return a row as a configuration, with the nearest values that exist."""
        encodings = zip(self._encodings.items(), self._columns, strict=True)
        return {name: encoding.value(row[columns]) for (name, encoding), columns in encodings}

    def random_rows(self, count: int, generator: np.random.Generator) -> Array:
        """Return random rows, which cover each range evenly (a Latin hypercube); (count, columns)."""
        rows = np.empty((count, len(self.parameter_of_column)))
        for columns, encoding in zip(self._columns, self._encodings.values(), strict=True):
            uniform = (generator.permutation(count) + generator.random(count)) / count
            values = encoding.discrete_values
            if values is None:
                rows[:, columns] = uniform[:, None]
            else:
                rows[:, columns] = values[(uniform * len(values)).astype(int)]
        return rows


class _Number:
    """A number as one column."""

    width = 1

    def __init__(self, range_: BaseDistribution) -> None:
        assert isinstance(range_, FloatDistribution | IntDistribution), "Optuna has three kinds of ranges"
        self._range = range_
        self._forward: Callable[[Any], Any] = np.log if range_.log else np.asarray
        self._inverse: Callable[[Any], float] = math.exp if range_.log else float
        self._low = float(self._forward(range_.low))
        self._span = float(self._forward(range_.high)) - self._low
        self.discrete_values: Array | None = None
        """All values, where they are few; (values, 1)."""
        if range_.step:
            n_steps = round((range_.high - range_.low) / range_.step)
            if n_steps < MAX_DISCRETE:
                values = [nearest(range_, range_.low + step * range_.step) for step in range(n_steps + 1)]
                self.discrete_values = self.rows(values)

    def rows(self, values: Sequence[Any]) -> Array:
        return np.asarray((self._forward(np.array(values, float)) - self._low) / self._span).reshape(-1, 1)

    def value(self, row: Array) -> Any:
        return nearest(self._range, self._inverse(self._low + float(row[0]) * self._span))


class _Choices:
    """A choice as a column for each of its values."""

    def __init__(self, range_: CategoricalDistribution) -> None:
        self._range, self.width = range_, len(range_.choices)
        self.discrete_values: Array = np.eye(self.width) / math.sqrt(2)

    def rows(self, values: Sequence[Any]) -> Array:
        return self.discrete_values[[int(self._range.to_internal_repr(value)) for value in values]]

    def value(self, row: Array) -> Any:
        return self._range.choices[int(row.argmax())]
