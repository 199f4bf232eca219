"""The scheduler that lets every trial finish, and the base of those that stop trials."""

from __future__ import annotations

from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from gaudi_tune.sweep.policies.schedulers.chosen import ChosenScheduler


class Fifo(ChosenScheduler, FIFOScheduler):
    """Lets every trial finish, and leaves it to Tune to start pending trials in their order.

    Ray's schedulers name the first pending trial, over and over. While a new trial actor starts for that trial, the
    trial is given each actor that becomes free instead, and Tune drops the actor that is starting (Ray 2.60). If trials
    end more often than an actor takes to start, a lost worker group is then never replaced.
    """

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return no trial: only paused ones must be named."""
        return None
