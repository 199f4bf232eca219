"""A forest that predicts a trial's standing among the others from its hyperparameters; importance comes from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gaudi_tune.base.failure import FailureKind
from gaudi_tune.define.objective import Objective
from gaudi_tune.show.pictures.shown_trial import ShownTrial

MIN_TRIALS = 20
"""The fewest trials for a forest (docs/decisions/24-pictures-that-answer.md)."""
MIN_EXPLAINED = 0.1
"""The least share of the differences that the forest must explain of trials which it has not seen."""
MAX_TRIALS = 300
"""The most trials that the forest sees, spread evenly over the sweep."""
NUM_TREES = 64
"""Trees of the forest, as many as Optuna's."""


class NothingToDrawError(Exception):
    """A picture cannot be drawn, perhaps not yet. The message says why."""


def standings(trials: Sequence[ShownTrial], objective: Objective) -> list[float]:
    """Return the share of the other trials that each trial beats, from 0 to 1.

    Two trials are compared by the best that they reached until the last step that both have reached: one that was
    stopped at a rung counts there, and not as if it had trained no better. A trial that diverged beats none.
    """
    steps = sorted({step for trial in trials for step in trial.curve})
    places = {step: place for place, step in enumerate(steps)}
    scores, last = np.full((len(trials), len(steps)), -math.inf), np.full(len(trials), len(steps) - 1)
    for row, trial in enumerate(trials):
        if not has_diverged(trial):
            last[row] = places[max(trial.curve)]
            for step, value in trial.curve.items():
                scores[row, places[step]] = objective.score(value)
            scores[row, : places[min(trial.curve)]] = scores[row, places[min(trial.curve)]]
    best = np.maximum.accumulate(scores, axis=1)
    common = np.minimum.outer(last, last)
    mine = best[np.arange(len(trials))[:, None], common]
    wins = (mine > mine.T) + 0.5 * (mine == mine.T)
    return [float(share) for share in (wins.sum(axis=1) - 0.5) / max(1, len(trials) - 1)]


def has_diverged(trial: ShownTrial) -> bool:
    """Whether a trial failed because its numbers were no longer finite."""
    return trial.failure is not None and trial.failure.kind == FailureKind.DIVERGED


def range_of(name: str, trials: Sequence[ShownTrial]) -> BaseDistribution:
    """Return the range from the lowest to the highest value of a hyperparameter, or its choices as texts."""
    values = [trial.params[name] for trial in trials if name in trial.params]
    ranges = [trial.ranges[name] for trial in trials if name in trial.ranges]
    if any(isinstance(values_range, CategoricalDistribution) for values_range in ranges):
        texts = list(map(str, values))
        choices = dict.fromkeys(choice for values_range in ranges for choice in getattr(values_range, "choices", ()))
        order = map(str, sorted(choices) if {*map(type, choices)} <= {int, float} else choices)  # of several branches
        return CategoricalDistribution(list(dict.fromkeys([*(text for text in order if text in texts), *texts])))
    kind = IntDistribution if all(isinstance(value, int) for value in values) else FloatDistribution
    return kind(min(values), max(values), log=all(getattr(values_range, "log", False) for values_range in ranges))


@dataclass(frozen=True)
class Surrogate:
    """The forest, fitted to trials of a search.

    A hyperparameter that a trial does not have gets the middle of its values in the others, or none of its choices: so
    a branch as such explains nothing, only the values within it do.
    """

    trials: Sequence[ShownTrial]
    objective: Objective

    @classmethod
    def fitted(cls, trials: Sequence[ShownTrial], objective: Objective) -> Surrogate:
        """Fit the forest.

        Raises:
            NothingToDrawError: There are too few trials, or their hyperparameters explain too little.
        """
        if len(trials) < MIN_TRIALS:
            raise NothingToDrawError(f"it takes {MIN_TRIALS} trials that have ended, and this sweep has {len(trials)}")
        surrogate = cls(trials[:: math.ceil(len(trials) / MAX_TRIALS)], objective)
        if surrogate.explained < MIN_EXPLAINED or len({trial.best for trial in trials}) < 2:
            raise NothingToDrawError("what the trials reached does not follow from their hyperparameters")
        return surrogate

    @cached_property
    def ranges(self) -> dict[str, BaseDistribution]:
        """The range of each hyperparameter that has two values."""
        names = dict.fromkeys(name for trial in self.trials for name in trial.params)
        ranges = {name: range_of(name, self.trials) for name in names}
        return {name: range_ for name, range_ in ranges.items() if not range_.single()}

    @cached_property
    def _middles(self) -> dict[str, float]:
        """The median of each numeric hyperparameter, on its own scale."""
        return {
            name: float(np.median([_place(range_, t.params[name]) for t in self.trials if name in t.params]))
            for name, range_ in self.ranges.items()
            if not isinstance(range_, CategoricalDistribution)
        }

    def _row(self, params: Mapping[str, Any]) -> list[float]:
        row: list[float] = []
        for name, range_ in self.ranges.items():
            if isinstance(range_, CategoricalDistribution):
                row += [float(name in params and str(params[name]) == choice) for choice in range_.choices]
            else:
                row.append(_place(range_, params[name]) if name in params else self._middles[name])
        return row

    @cached_property
    def _forest(self) -> Any:
        from sklearn.ensemble import RandomForestRegressor  # seconds

        if not self.ranges:
            raise NothingToDrawError("no hyperparameter has two values")
        forest = RandomForestRegressor(NUM_TREES, random_state=0, oob_score=True)
        return forest.fit([self._row(trial.params) for trial in self.trials], standings(self.trials, self.objective))

    @property
    def explained(self) -> float:
        """The share of the differences that each tree explains of the trials that it was not fitted to, at most 1."""
        return float(self._forest.oob_score_)

    @property
    def importances(self) -> dict[str, float]:
        """How much the splits by each hyperparameter explain (mean decrease of impurity); all together 1."""
        shares = iter(self._forest.feature_importances_)
        return {
            name: float(sum(next(shares) for _ in getattr(range_, "choices", (None,))))
            for name, range_ in self.ranges.items()
        }

    def predict(self, params: Mapping[str, Any]) -> tuple[float, float, float]:
        """Return the standing of a configuration: the mean of the trees, and the bounds of eight in ten of them."""
        row: npt.NDArray[np.float64] = np.array([self._row(params)])
        trees = np.array([tree.predict(row)[0] for tree in self._forest.estimators_])
        low, high = np.quantile(trees, [0.1, 0.9])
        return float(trees.mean()), float(low), float(high)


def _place(range_: BaseDistribution, value: float) -> float:
    return math.log(value) if getattr(range_, "log", False) else float(value)
