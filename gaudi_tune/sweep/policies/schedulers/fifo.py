"""Trials in the order in which they come, and a lost worker group that comes back."""

from __future__ import annotations

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

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Name none: only a paused trial needs to be."""
        return None
