"""Running trials in a worker group, and a sweep in one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.group.worker_group import WorkerGroup
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.training.session import TrainLoop
from tests.helpers.host import Hosted
from tests.helpers.sessions import numbers_of


def start_group(host: Any, train_loop: TrainLoop, num_workers: int, storage: Path) -> Any:
    """Start a worker group in an actor."""
    spec = WorkerGroupSpec(
        train_loop=train_loop, num_workers=num_workers, device=DEVICE_TYPES["cpu"], storage=str(storage)
    )
    return Hosted(host, WorkerGroup.start, spec, f"group-of-{num_workers}")


def run_trial(group: Any, config: Mapping[str, Any], checkpoint: str | None = None) -> list[dict[str, Any]]:
    """Run a trial to its end and return the numbers of its reports."""
    reports = [group.start_trial(config, checkpoint)]
    while reports[-1]["kind"] == "metrics":
        reports.append(group.next_report())
    return [numbers_of(report["metrics"]) for report in reports[:-1]]


def in_one_group(tuner: Any) -> SweepTuner:
    """Return the tuner of a sweep with one group, which starts sooner than one for each core of the tests' Ray."""
    return SweepTuner(replace(tuner.plan, groups=1))
