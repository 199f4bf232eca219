"""The axes of the picture of hyperparameters and metric: where each trial is on an axis, and what its value is.

Optuna has such a picture, too. Importing it takes 0.4 s for matplotlib, which it does not need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.distributions import CategoricalDistribution

from gaudi_tune.show.pictures.sweep_view import ShownTrial

MISSING = "None"
"""What an axis says for trials that do not have its hyperparameter."""
ROOM_BELOW = 0.12
"""The share of an axis below its lowest value that is left for these trials."""
NUM_TICKS = 5
"""The number of marks on an axis of numbers that is not logarithmic."""
MAX_LABEL = 20
"""The longest name of an axis, in characters."""


@dataclass(frozen=True)
class Axis:
    """An axis from 0 to 1."""

    name: str
    positions: list[float]
    """The position of each trial, in their order."""
    texts: list[str]
    """The value of each trial."""
    ticks: list[tuple[float, str]]
    """Position and text of each mark."""

    @property
    def label(self) -> str:
        """The name, cut if it is long."""
        return self.name if len(self.name) < MAX_LABEL else f"{self.name[: MAX_LABEL - 3]}..."


def axes_of(trials: Sequence[ShownTrial], metric: str) -> list[Axis]:
    """Return the axis of the metric and, by name, that of each hyperparameter. Each trial has a best value."""
    names = sorted({name for trial in trials for name in trial.ranges})
    return [_axis_of_numbers(metric, [trial.point[0] for trial in trials]), *(_axis_of(name, trials) for name in names)]


def _axis_of(name: str, trials: Sequence[ShownTrial]) -> Axis:
    ranges = [trial.ranges[name] for trial in trials if name in trial.ranges]
    values = [trial.params.get(name) for trial in trials]
    if not isinstance(ranges[0], CategoricalDistribution):
        return _axis_of_numbers(name, values, is_log=bool(getattr(ranges[0], "log", False)))
    texts = [str(value) if name in trial.ranges else None for trial, value in zip(trials, values, strict=True)]
    choices = dict.fromkeys(str(choice) for values_range in ranges for choice in getattr(values_range, "choices", ()))
    used_choices = [choice for choice in choices if choice in texts]
    places = [None if text is None else used_choices.index(text) for text in texts]
    return _make_axis(name, places, dict(enumerate(used_choices)), used_choices.__getitem__)


def _axis_of_numbers(name: str, values: Sequence[float | None], *, is_log: bool = False) -> Axis:
    """Return the axis of numbers; a trial may have none."""
    numbers = [math.log10(value) if is_log and value is not None else value for value in values]
    known_numbers = [number for number in numbers if number is not None]
    low, high = min(known_numbers), max(known_numbers)
    marks = (
        {low, high, *range(math.ceil(low), math.floor(high) + 1)} if is_log else set(np.linspace(low, high, NUM_TICKS))
    )

    def text(number: float) -> str:
        return f"{10**number if is_log else number:.3g}"

    return _make_axis(name, numbers, {mark: text(mark) for mark in sorted(marks)}, text)


def _make_axis(
    name: str, numbers: Sequence[float | None], marks: Mapping[float, str], text: Callable[[Any], str]
) -> Axis:
    """Return an axis with these marks, the lowest and the highest number among them."""
    room, low, high = ROOM_BELOW if None in numbers else 0.0, min(marks), max(marks)

    def position(number: float | None) -> float:
        if number is None:
            return 0.0
        return room + (1 - room) * ((number - low) / (high - low) if high > low else 0.5)

    ticks = [(position(mark), mark_text) for mark, mark_text in marks.items()]
    if room:
        ticks.insert(0, (0.0, MISSING))
    texts = [MISSING if number is None else text(number) for number in numbers]
    return Axis(name, [position(number) for number in numbers], texts, ticks)
