"""What a source reports about the run that a baseline repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gaudi_tune.base.errors import SweepError, users_error
from gaudi_tune.define.budget import Budget


@dataclass(frozen=True, kw_only=True)
class Published:
    """The figures of a published run, and how its source measured them."""

    source: str
    """Who published it, and where."""
    devices: str
    """What it ran on, in the source's words."""
    workers: int
    """Devices that trained together."""
    accuracy: float | None = None
    """Accuracy on the validation data at the end, from 0 to 1."""
    first_epoch_s: float | None = None
    """Seconds of the first epoch, in which graphs are compiled."""
    later_epoch_s: float | None = None
    """Seconds of each later epoch."""
    total_s: float | None = None
    """Seconds of the whole run."""
    samples_per_s: float | None = None
    """Throughput of all workers over whole epochs."""
    last_step_samples_per_s: tuple[float, float] | None = None
    """Lowest and highest throughput of the last step of an epoch, when the loaders are full."""
    notes: tuple[str, ...] = ()
    """How the source measured, and how its run differs from this project's."""


@dataclass(frozen=True, kw_only=True)
class OtherBaseline:
    """Another published run of a model, which ``--baseline NAME`` uses in place of the first."""

    values: Callable[[int], Mapping[str, Any]]
    """A function that returns its hyperparameters for trials of that many workers."""
    settings: Mapping[str, Any]
    """Values that all trials of its sweeps have, such as its optimizer, even if the space has a range for them."""
    budget: Budget
    """The budget of its full recipe."""
    published: Published
    """The figures that its source reports."""

    def values_for(self, workers: int) -> Mapping[str, Any]:
        """Return its hyperparameters for trials of that many workers; a SweepError says how its function failed."""
        try:
            return self.values(workers)
        except (Exception, SystemExit) as error:
            raise SweepError(f"the values of a baseline failed: {users_error(error)}; fix it there") from error
