"""A sweep as its loops wrote it down, and what follows from that."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from scipy import stats

from gaudi_tune.define.objective import Objective, scores_of


@dataclass(frozen=True)
class Truth:
    """A sweep as its loops wrote it down."""

    reports: Mapping[int, Mapping[int, Mapping[str, Any]]]
    """For each trial of the search its reports that the sweep took, by their number."""
    configs: Mapping[int, Mapping[str, Any]]
    objectives: Sequence[Objective] = (Objective("loss", "min"),)
    unit: str = "epoch"
    confirmed: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """For each trial that was confirmed the test losses at the best reports of those that confirm it."""
    baseline: int = 0
    """The number of the baseline; 0 if there is none."""
    clones: bool = False
    """Whether trials continue from checkpoints of others: then reports are in the order in which they were made."""
    results: Mapping[int, tuple[Any, Mapping[str, Any]]] | None = None
    """The last value and the configuration of each trial in Ray's ResultGrid; None if nobody kept that."""
    settled: dict[int, float | None] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """The name of the first objective."""
        return self.objectives[0].name

    def best_in(self, values: Iterable[float]) -> float | None:
        """Return the best of the values."""
        return max(values, key=self.objectives[0].score, default=None)

    def finite(self, trial: int) -> dict[int, float]:
        """Return the values that count, by report."""
        values = {number: report[self.metric] for number, report in self.reports[trial].items()}
        return {number: value for number, value in values.items() if math.isfinite(value)}

    def best_of(self, trial: int) -> float | None:
        """Return the best value of a trial."""
        if trial in self.settled:
            return self.settled[trial]
        return self.best_in(self.finite(trial).values())

    def point_of(self, trial: int) -> list[float]:
        """Return all objectives in the best report of a trial, of equal ones in the one that is best in the next."""
        points = [[report[objective.name] for objective in self.objectives] for report in self.reports[trial].values()]
        best = [point for point in points if point[0] == self.best_of(trial)]
        return max(best, key=lambda point: scores_of(self.objectives, point), default=[])

    @property
    def front(self) -> dict[int, list[float]]:
        """The trials whose points no other dominates."""
        points = {trial: point for trial in self.reports if (point := self.point_of(trial))}
        scores = {trial: scores_of(self.objectives, point) for trial, point in points.items()}
        return {
            trial: points[trial]
            for trial, own in scores.items()
            if not any(other != own and all(map(operator.ge, other, own)) for other in scores.values())
        }

    def settle(self, trial: int, value: float | None) -> bool:
        """Take the value of a trial that raised an error, and return whether it may be that.

        It counts with the best report of those that the sweep had saved by then, which only the sweep knows.
        """
        self.settled[trial] = value
        saved = {report[self.metric] for report in self.reports[trial].values() if report["saves"] or self.clones}
        return value is None or value in saved

    @property
    def best(self) -> float | None:
        """The best value of the sweep."""
        return self.best_in(value for trial in self.reports if (value := self.best_of(trial)) is not None)

    def mean(self, trial: int) -> float:
        """Return the mean of the scores of a confirmed trial."""
        return fmean(self.confirmed[trial])

    def half_width(self, trial: int) -> float:
        """Return half the width of the 95 % interval of that mean."""
        scores = self.confirmed[trial]
        return float(stats.t.ppf(0.975, len(scores) - 1)) * stats.sem(scores)

    @property
    def winner(self) -> int | None:
        """The trial with the best mean in the confirmation, or of the best report where nothing was confirmed."""
        if any(trial != self.baseline for trial in self.confirmed):
            return max(self.confirmed, key=lambda trial: self.objectives[0].score(self.mean(trial)))
        return min(
            self.front, key=lambda trial: (-scores_of(self.objectives, self.front[trial])[0], trial), default=None
        )

    def x_of(self, trial: int, value: float) -> set[float]:
        """Return the x with which a trial reported a value."""
        return {report["x"] for report in self.reports[trial].values() if report[self.metric] == value}

    def epochs_of(self, trial: int, value: float) -> set[int]:
        """Return the epochs, from 1, in which a trial reported a value, or did before a kill."""
        found, epoch = set(), 0
        reports = [report for _, report in sorted(self.reports[trial].items())]
        from_0 = bool(reports) and reports[0].get(self.unit) == 0
        for report in reports:  # one that does not say its epoch has the last one, or its own number
            epoch = report[self.unit] + from_0 if self.unit in report else epoch
            if report[self.metric] == value:
                said = {at + from_0 for at in report.get("said", ()) if at is not None}
                found |= said | {int(epoch or report["count"])}
        return found
