"""The objectives of a sweep: which reported numbers it improves, and which of two values is better."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Mode: TypeAlias = Literal["max", "min"]
USUAL_MODES: dict[Mode, tuple[str, ...]] = {
    "max": ("accuracy", "f1", "_per_s"),
    "min": ("loss", "error", "perplexity", "mse", "mae"),
}
"""Parts of names by which to recognise metrics that are usually maximized or minimized."""


SET_BY_TUNE = frozenset(
    {
        "checkpoint_dir_name", "config", "date", "done", "episodes_total", "experiment_tag", "hostname",
        "iterations_since_restore", "node_ip", "pid", "should_checkpoint", "time_since_restore", "time_this_iter_s",
        "time_total_s", "timestamp", "timesteps_since_restore", "timesteps_total", "training_iteration", "trial_id",
    }
)  # fmt: skip
"""Entries of a report that Ray Tune sets itself, whatever the train loop reports."""


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
        if self.name in SET_BY_TUNE:
            raise ValueError(
                f"metric must be a name that Ray Tune does not set itself, but got {self.name!r}; report the number "
                f"under another name, such as 'my_{self.name}'"
            )

    def better(self, value: float, than: float) -> bool:
        """Whether ``value`` is strictly better than the other value."""
        return value > than if self.maximizes else value < than

    def better_of(self, value: float, earlier: float | None) -> float:
        """Return the better of a value and an earlier one, if there is one."""
        return value if earlier is None or self.better(value, than=earlier) else earlier

    def best(self, values: Iterable[float]) -> float:
        """Return the best of the values, of which there must be at least one."""
        return max(values, key=self.score)

    def worst(self, values: Iterable[float]) -> float:
        """Return the worst of the values, of which there must be at least one."""
        return min(values, key=self.score)

    @property
    def maximizes(self) -> bool:
        """Whether more is better."""
        return self.mode == "max"

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """Optuna's word for the mode."""
        return "maximize" if self.maximizes else "minimize"

    @property
    def rule(self) -> str:
        """The mode in words."""
        return "more is better" if self.maximizes else "less is better"

    def value_in(self, metrics: Mapping[str, Any]) -> float:
        """Return the value of the objective in a report, or NaN if the report does not have it."""
        return float(metrics.get(self.name, math.nan))

    def score(self, value: float) -> float:
        """Return ``value``, negated if less is better: of two scores, the larger one is always the better one."""
        return value if self.maximizes else -value

    def leads(self, value: float, trial: int, best: tuple[float, int] | None) -> bool:
        """Whether a value becomes the best of the sweep.

        A value that is not finite never does. Of two equal values, the one of the lower trial number is the best,
        whichever was reported first.

        Args:
            value: The new value.
            trial: The number of the trial that has reported it.
            best: The best value so far and its trial; None if there is none.
        """
        if best is None or not math.isfinite(value):
            return math.isfinite(value)
        return self.better(value, than=best[0]) or (value == best[0] and trial < best[1])

    def __str__(self) -> str:
        return f"{self.mode} {self.name}"


def point_in(objectives: Sequence[Objective], metrics: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the point of a report: its values of the objectives, or NaN where it has none."""
    return tuple(objective.value_in(metrics) for objective in objectives)


def scores_of(objectives: Sequence[Objective], point: Sequence[float]) -> tuple[float, ...]:
    """Return the score of each value of a point. The first objective leads: of two points, the better has the larger
    tuple of scores."""
    return tuple(objective.score(value) for objective, value in zip(objectives, point, strict=True))
