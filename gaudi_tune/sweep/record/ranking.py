"""The ranking of trials by one or more objectives: which is the best, and in which order they are.

A point has a score for each objective, and more is better. One point dominates another if it is worse in no objective
and better in at least one. The front is the set of points that no other point dominates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gaudi_tune.base import names
from gaudi_tune.define.objective import Objective, scores_of
from gaudi_tune.sweep.record.events import Reported
from gaudi_tune.sweep.record.trial_state import SavedCheckpoint, TrialState

Scores = Sequence[float]
"""A point: one score for each objective, more being better; all finite."""


class RankedTrials:
    """The trials of a sweep, and which of them is the best. :class:`SweepState` books what happens to them.

    What is asked with each report is kept up from report to report: a sweep may have ten thousand trials.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        """Begin with no trial. Trials are ranked by ``objectives``, the most important first."""
        self.objectives = tuple(objectives)
        self.objective = self.objectives[0]
        self.trials: dict[int, TrialState] = {}
        """All trials by their number, in the order in which they began."""
        self.front: list[TrialState] = []
        """The trials of the search whose points no other dominates, the best in the first objective first. With one
        objective it has the best trial alone: of equal ones, the one with the lowest number."""
        self.best_at_end: TrialState | None = None
        """The best trial by its last value, of all that have ended and not failed: what Tune calls the best."""
        self.best_saved: float | None = None
        """The best value of the first objective in a checkpoint, which may have been deleted since."""

    @property
    def searched(self) -> list[TrialState]:
        """The trials of the search, in the order in which they began."""
        return [trial for trial in self.trials.values() if not trial.confirms]

    @property
    def has_front(self) -> bool:
        """Whether several objectives count, so that the front may have several trials."""
        return len(self.objectives) > 1

    @property
    def best(self) -> TrialState | None:
        """The first trial of the front; None if no trial of the search has reported finite values."""
        return self.front[0] if self.front else None

    @property
    def leader(self) -> tuple[float, int] | None:
        """The value and the number of the best trial; None if there is none."""
        return None if self.best is None or self.best.best is None else (self.best.best, self.best.number)

    def leads(self, trial: TrialState) -> bool:
        """Whether the last report of a trial put it on the front.

        With one objective, a tie with the best leads, too: the trial may be the best by another rule, such as the lower
        number.
        """
        if not trial.last_point:
            return False
        if self.has_front:
            return trial.best_step == trial.step and trial in self.front
        return self.leader is None or not self.objective.better(self.leader[0], than=trial.last_point[0])

    def saves_best(self, trial: TrialState) -> bool:
        """Whether the last report of a trial is better than every checkpoint, where its loop does not save at each.

        The report that is best of all may have nothing to save, so there the best that can be saved counts for itself.
        """
        if not trial.skips_saves or trial.to_save is None or trial.to_save.step != trial.step or trial.value is None:
            return False
        return self.best_saved is None or self.objective.better(trial.value, than=self.best_saved)

    def ranked(self, trials: Iterable[TrialState]) -> list[TrialState]:
        """Return trials that have a point in the order of :func:`in_order`; of equal ones, the lowest number is
        first."""
        scores = {trial.number: self._scores(trial) for trial in trials}
        numbers = sorted(scores, key=lambda number: (-scores[number][0], number))
        return [self.trials[numbers[place]] for place in in_order([scores[number] for number in numbers])]

    def best_checkpoint(self, folder: Path, trials: Iterable[TrialState]) -> SavedCheckpoint | None:
        """Return the checkpoint with the best value of these trials that is still in the sweep's folder.

        Of equal ones, it is the last.
        """
        best: SavedCheckpoint | None = None
        for saved in [saved for trial in trials for saved in trial.checkpoints]:
            is_best = best is None or not self.objective.better(best.value, than=saved.value)
            if math.isfinite(saved.value) and is_best and (folder / saved.place).is_dir():
                best = saved
        return best

    # What SweepState calls.

    def note_report(self, trial: TrialState, report: Reported) -> bool:
        """Take a report of finite values as the trial's best if it is, and return whether the front has a new point."""
        if trial.point and scores_of(self.objectives, report.point) <= self._scores(trial):
            return False
        earlier_point, front_points = trial.point, [leading.point for leading in self.front]
        trial.point, trial.best_step, trial.best_config = report.point, report.step, trial.config
        trial.test_point = self._on_test_data(report.metrics, report.point)
        trial.tested = isinstance(report.metrics.get(names.test_metric(self.objective.name)), Real)
        if trial.confirms:
            return False
        self._join_front(trial, earlier_point)
        return trial in self.front and [leading.point for leading in self.front] != front_points

    def note_saved(self, saved: SavedCheckpoint) -> None:
        """Take what a checkpoint has that was just written."""
        if math.isfinite(saved.value):
            self.best_saved = self.objective.better_of(saved.value, self.best_saved)

    def note_end(self, trial: TrialState) -> None:
        """See whether a trial that has ended is the best by its last value."""
        best = self.best_at_end
        leader = None if best is None or best.value is None else (best.value, best.number)
        value = math.nan if trial.value is None else trial.value
        if trial.status != "failed" and self.objective.leads(value, trial.number, leader):
            self.best_at_end = trial

    def fall_back_to_saved(self, trial: TrialState) -> None:
        """Let a trial that an error ended count with the best report that it saved.

        Its best report may be lost: the error may have come while that was being saved.
        """
        saved = [checkpoint for checkpoint in trial.checkpoints if math.isfinite(checkpoint.value)]
        if trial.best is None or any(checkpoint.value == trial.best for checkpoint in saved):
            return
        if saved:
            best = max(saved, key=lambda checkpoint: self.objective.score(checkpoint.value))
            trial.point, trial.best_step, trial.best_config = best.point, best.step, best.config
        else:
            trial.point = ()
        if trial in self.front:
            self._take_front(self.searched)

    def rank_again(self) -> None:
        """Rank all trials anew, which were restored."""
        self.best_at_end = self.best_saved = None
        self._take_front(self.searched)
        for trial in self.trials.values():
            if trial.has_ended:
                self.note_end(trial)
            for saved in trial.checkpoints:
                self.note_saved(saved)

    def _join_front(self, trial: TrialState, earlier_point: tuple[float, ...]) -> None:
        """Put a trial on the front if its new point belongs there, and take its ``earlier_point`` off."""
        if trial not in self.front:
            self._take_front([*self.front, trial])
        elif dominates(self._scores(trial), scores_of(self.objectives, earlier_point)):
            self._take_front(self.front)
        else:  # points that only the earlier point dominated join the front again
            self._take_front(self.searched)

    def _take_front(self, trials: Sequence[TrialState]) -> None:
        """Choose the front among these trials."""
        candidates = [trial for trial in trials if trial.point]
        front = [candidates[place] for place in on_front([self._scores(trial) for trial in candidates])]
        front.sort(key=lambda trial: (*(-score for score in self._scores(trial)), trial.number))
        self.front = front if self.has_front else front[:1]

    def _scores(self, trial: TrialState) -> tuple[float, ...]:
        return scores_of(self.objectives, trial.point)

    def _on_test_data(self, metrics: Mapping[str, Any], point: Sequence[float]) -> tuple[float, ...]:
        """Return the objectives on test data, and the values of the point where a report has none."""
        test_values = [metrics.get(names.test_metric(objective.name)) for objective in self.objectives]
        pairs = zip(test_values, point, strict=True)
        return tuple(float(test_value) if isinstance(test_value, Real) else value for test_value, value in pairs)


def dominates(point: Scores, other_point: Scores) -> bool:
    """Whether a point dominates another."""
    is_worse_in_none = all(score >= other_score for score, other_score in zip(point, other_point, strict=True))
    return is_worse_in_none and tuple(point) != tuple(other_point)


def on_front(points: Sequence[Scores]) -> list[int]:
    """Return the places of the points that no other point dominates."""
    if not points:
        return []
    scores = np.array(points, dtype=float)
    if scores.shape[1] == 1:  # the matrix of all pairs of ten thousand trials would take 100 MB
        return np.flatnonzero(scores[:, 0] == scores.max()).tolist()
    return np.flatnonzero(~_dominates(scores).any(axis=0)).tolist()


def in_order(points: Sequence[Scores]) -> list[int]:
    """Return the places of all points, the best first.

    The front comes first, then the front of the remaining points, and so on. Within a front, the point that is best in
    the first objective comes first, followed each time by the point that is farthest from those before it. This is the
    epsilon-net of multi-objective ASHA (Schmucker et al., 2021). Distances are relative to the range of each objective
    on that front. Equal points keep their order.
    """
    if not points:
        return []
    scores = np.array(points, dtype=float)
    if scores.shape[1] == 1:  # as above
        return np.argsort(-scores[:, 0], kind="stable").tolist()
    pairs = _dominates(scores)
    dominators = pairs.sum(axis=0)  # of each point, among the remaining ones
    remaining, order = np.ones(len(scores), dtype=bool), list[int]()
    while remaining.any():
        front = np.flatnonzero(remaining & (dominators == 0))
        remaining[front] = False
        dominators = dominators - pairs[front].sum(axis=0)
        order += front[_spread(scores[front])].tolist()
    return order


def _dominates(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return whether each point dominates each other; (points, points)."""
    columns = scores.T
    worse_in_none = np.logical_and.reduce([np.greater_equal.outer(column, column) for column in columns])
    return np.asarray(worse_in_none & ~worse_in_none.T)


def _spread(scores: npt.NDArray[np.float64]) -> list[int]:
    """Return the places of the points of one front in their order."""
    ranges = np.ptp(scores, axis=0)
    scaled = (scores - scores.min(axis=0)) / np.where(ranges > 0, ranges, 1.0)
    order = [int(np.lexsort(-scores.T[::-1])[0])]  # best in the first objective, of equal ones in the next
    distances = np.linalg.norm(scaled - scaled[order[0]], axis=1)  # from each point to the nearest in the order
    distances[order[0]] = -1.0
    while len(order) < len(scores):
        order.append(int(distances.argmax()))
        distances = np.minimum(distances, np.linalg.norm(scaled - scaled[order[-1]], axis=1))
        distances[order] = -1.0
    return order
