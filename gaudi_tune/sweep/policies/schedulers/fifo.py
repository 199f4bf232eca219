"""Trials in the order in which they come, and a lost worker group that comes back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from gaudi_tune.sweep.policies.schedulers.chosen import ChosenScheduler


class Fifo(ChosenScheduler, FIFOScheduler):
    """Lets every trial finish, and leaves it to Tune to start those that are pending, in their order.

    Ray's schedulers name the first pending trial, over and over. While a new trial actor starts for it, that trial then
    gets each actor that becomes free instead, and Tune drops the one that starts (Ray 2.60): where trials end more
    often than an actor takes to start, a lost group never came back.
    """

    def __init__(self) -> None:
        super().__init__()
        self._metric, self._sign = "", 1.0

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take the objective from Tune."""
        self._metric, self._sign = metric or "", -1.0 if mode == "min" else 1.0
        return True

    def _score(self, result: Mapping[str, Any]) -> float:
        """Return the objective so that more is better; nan if it was not reported."""
        return self._sign * float(result.get(self._metric, math.nan))

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Name none: only a paused trial needs to be."""
        return None
