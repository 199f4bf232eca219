"""What the outbox has of a trial's run in MLflow: which reports, with which parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from gaudi_tune.show.trackers.records import Update

PARAM_METRIC_PREFIX = "hyperparameters/"
"""The prefix of the metric of a hyperparameter that changes while a trial trains."""

ChangedParams: TypeAlias = frozenset[tuple[str, float]]
"""The hyperparameters of a report that differ from those that its trial began with: none, but for clones of pbt, whose
seed always does. Reports are counted for each such set, see :meth:`TrialRun.add`."""


@dataclass
class TrialRun:
    """What the outbox has of a trial's run. After a kill it may be more than the state knows."""

    name: str
    """The name of the run in records."""
    params: Mapping[str, str]
    step: int = 0
    """The largest step of its reports."""
    _reports: dict[ChangedParams, int] = field(default_factory=dict)
    """The number of the last report, by what had changed."""

    @property
    def attempt(self) -> int:
        """How many runs the trial has had, with this one."""
        return int(self.name.partition(" ")[2] or 1)

    @property
    def reports(self) -> int:
        """The number of the last report that it made with the parameters that it began with."""
        return self._reports.get(frozenset(), 0)

    def add(self, report: Update) -> bool:
        """Note a report, and return whether it is new.

        A trial that lost its workers repeats reports, which are left out. One that took over another's weights may also
        go back to an earlier step, but with another configuration, and its reports are new.
        """
        changed = frozenset(entry for entry in report.metrics.items() if entry[0].startswith(PARAM_METRIC_PREFIX))
        is_new = report.report > self._reports.get(changed, 0)
        if is_new:
            self.step = max(self.step, report.step)
            self._reports[changed] = report.report
        return is_new
