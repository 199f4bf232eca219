"""Running trials in a worker group, and a sweep in one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gaudi_tune.on_ray.tuner import SweepTuner
from tests.helpers.sessions import numbers_of


def run_trial(group: Any, config: Mapping[str, Any], checkpoint: str | None = None) -> list[dict[str, Any]]:
    """Run a trial to its end and return the numbers of its reports."""
    reports = [group.start_trial(config, checkpoint)]
    while reports[-1]["kind"] == "metrics":
        reports.append(group.next_report())
    return [numbers_of(report["metrics"]) for report in reports[:-1]]


def in_one_group(tuner: Any) -> SweepTuner:
    """Return the tuner of a sweep with one group, which starts sooner than one for each core of the tests' Ray."""
    return SweepTuner(replace(tuner.plan, groups=1))
