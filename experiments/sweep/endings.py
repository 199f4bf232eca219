"""Telling that a trial has ended, however it ended."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from experiments.sweep.budget import Budget
from experiments.sweep.outcome import Outcome, end_of, error_of, why_diverged


class TellsEndings(Callback):
    """A callback that is told once of each trial's end, with the reason."""

    def __init__(self, metric: str, budget: Budget) -> None:
        self._metric, self._budget = metric, budget

    @abstractmethod
    def trial_ended(self, trial: Trial, outcome: Outcome, reason: str | None) -> None:
        """Take note; ``reason`` says why a trial failed."""

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Tell of a trial that ended without an error."""
        outcome = end_of(trial.last_result, self._metric, self._budget)
        self.trial_ended(trial, outcome, why_diverged(trial.last_result, self._metric))

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Tell of a trial that ended with an error."""
        self.trial_ended(trial, "failed", error_of(trial))
