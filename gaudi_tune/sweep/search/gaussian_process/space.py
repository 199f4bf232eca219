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

FEW = 16
"""A number with more values than this is searched as if it were continuous, and rounded."""


class Space:
    """The columns of some hyperparameters: one for a number, its range or the logarithm of it from 0 to 1; and one for
    each choice, so that any two are as far apart as the ends of a range."""

    def __init__(self, ranges: Mapping[str, BaseDistribution]) -> None:
        """Lay the columns out.

        Args:
            ranges: Of the hyperparameters by name.
        """
        self._parts = {
            name: _Choices(range_) if isinstance(range_, CategoricalDistribution) else _Number(range_)
            for name, range_ in ranges.items()
        }
        ends = np.cumsum([part.width for part in self._parts.values()])
        self._columns = [slice(end - part.width, end) for end, part in zip(ends, self._parts.values(), strict=True)]
        self.of: npt.NDArray[np.intp] = np.repeat(np.arange(len(ranges)), [part.width for part in self._parts.values()])
        """To which hyperparameter each column belongs."""
        self.few = [
            (columns, part.few)
            for columns, part in zip(self._columns, self._parts.values(), strict=True)
            if part.few is not None
        ]
        """Of each hyperparameter with few values, its columns and these values in them; (values, columns)."""
        self.continuous = np.ones(len(self.of))
        """1 for the column of a number with many values, else 0."""
        for columns, _ in self.few:
            self.continuous[columns] = 0

    def rows(self, configurations: Sequence[Mapping[str, Any]]) -> Array:
        """Return configurations as rows; (configurations, columns)."""
        parts = [part.rows([each[name] for each in configurations]) for name, part in self._parts.items()]
        return np.concatenate(parts, axis=1)

    def configuration(self, row: Array) -> dict[str, Any]:
        """Return a row as a configuration, with the nearest values that there are."""
        parts = zip(self._parts.items(), self._columns, strict=True)
        return {name: part.value(row[columns]) for (name, part), columns in parts}

    def drawn(self, count: int, random: np.random.Generator) -> Array:
        """Return random rows, which cover each range evenly; (count, columns)."""
        rows = np.empty((count, len(self.of)))
        for columns, part in zip(self._columns, self._parts.values(), strict=True):
            even = (random.permutation(count) + random.random(count)) / count
            rows[:, columns] = even[:, None] if part.few is None else part.few[(even * len(part.few)).astype(int)]
        return rows


class _Number:
    width = 1

    def __init__(self, range_: BaseDistribution) -> None:
        assert isinstance(range_, FloatDistribution | IntDistribution), "Optuna has three kinds of ranges"
        self._range = range_
        self._of: Callable[[Any], Any] = np.log if range_.log else np.asarray
        self._back: Callable[[Any], float] = math.exp if range_.log else float
        self._low = float(self._of(range_.low))
        self._span = float(self._of(range_.high)) - self._low
        self.few: Array | None = None
        if range_.step and (steps := round((range_.high - range_.low) / range_.step)) < FEW:
            values = [nearest(range_, range_.low + step * range_.step) for step in range(steps + 1)]
            self.few = self.rows(values)

    def rows(self, values: Sequence[Any]) -> Array:
        return np.asarray((self._of(np.array(values, float)) - self._low) / self._span).reshape(-1, 1)

    def value(self, row: Array) -> Any:
        return nearest(self._range, self._back(self._low + float(row[0]) * self._span))


class _Choices:
    def __init__(self, range_: CategoricalDistribution) -> None:
        self._range, self.width = range_, len(range_.choices)
        self.few: Array = np.eye(self.width) / math.sqrt(2)

    def rows(self, values: Sequence[Any]) -> Array:
        return self.few[[int(self._range.to_internal_repr(value)) for value in values]]

    def value(self, row: Array) -> Any:
        return self._range.choices[int(row.argmax())]
