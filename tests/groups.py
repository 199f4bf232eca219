"""Running trials in a worker group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.sessions import numbers_of
from trainables.runtime.group.worker_group import WorkerGroup


def run_trial(group: WorkerGroup, config: Mapping[str, Any], checkpoint: str | None = None) -> list[dict[str, Any]]:
    """Run a trial to its end and return the numbers of its reports."""
    reports = [group.start(config, checkpoint)]
    while reports[-1]["kind"] == "metrics":
        reports.append(group.next_report())
    return [numbers_of(report["metrics"]) for report in reports[:-1]]
