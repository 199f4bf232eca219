"""The scheduler that lets every trial finish."""

from __future__ import annotations

from gaudi_tune.sweep.policies.schedulers.scheduler import Scheduler


class Fifo(Scheduler):
    """Lets every trial finish."""

    takes_objectives = True
