"""The objective of an experiment: which reported number is better when it is larger, or smaller."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["max", "min"]
USUAL_MODES: dict[Mode, tuple[str, ...]] = {
    "max": ("accuracy", "f1", "_per_s"),
    "min": ("loss", "error", "perplexity", "mse", "mae"),
}
"""Parts of the names of metrics that are usually maximized or minimized."""


def usual_mode(metric: str) -> Mode | None:
    """Return whether a metric of this name is usually maximized or minimized; None if the name does not say."""
    return next((mode for mode, parts in USUAL_MODES.items() if any(part in metric.lower() for part in parts)), None)


@dataclass(frozen=True)
class Objective:
    """The metric that a sweep improves."""

    name: str
    """The metric, as the train loop reports it."""
    mode: Mode = "max"
    """Whether more or less of it is better."""

    def __post_init__(self) -> None:
        if self.mode not in ("max", "min"):
            raise ValueError(
                f"mode must be 'max' (more of the metric is better) or 'min' (less is better), but got {self.mode!r}"
            )
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(
                f"metric must be the name of one number that the train loop reports, but got {self.name!r}; give it as "
                f"a text, such as 'val_loss'"
            )

    def better(self, value: float, than: float) -> bool:
        """Whether ``value`` is strictly better than another."""
        return value > than if self.mode == "max" else value < than

    def best_of(self, value: float, earlier: float | None) -> float:
        """Return the better of a value and an earlier one, if there is one."""
        return value if earlier is None or self.better(value, than=earlier) else earlier

    def score(self, value: float) -> float:
        """Return ``value`` so that more is better."""
        return value if self.mode == "max" else -value

    def leads(self, value: float, trial: int, best: tuple[float, int] | None) -> bool:
        """Whether ``value`` of this trial becomes the best of the sweep, which so far is ``best`` (value and trial).

        A value that is not finite never does. Of two equal values the one of the lower trial number is the best,
        whichever was reported first.
        """
        if best is None or not math.isfinite(value):
            return math.isfinite(value)
        return self.better(value, than=best[0]) or (value == best[0] and trial < best[1])

    def __str__(self) -> str:
        return f"{self.mode} {self.name}"


def scores_of(objectives: Sequence[Objective], point: Sequence[float]) -> tuple[float, ...]:
    """Return a value of each objective so that more is better; of two the larger tuple is the better, the first before
    the others."""
    return tuple(each.score(value) for each, value in zip(objectives, point, strict=True))
