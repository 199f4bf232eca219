"""The trainable in this process, its workers in others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ray import tune
from ray.tune.result import TRAINING_ITERATION

from tests.loops import environment_at_start, stopping_once
from trainables.runtime import names
from trainables.runtime.checkpoint import seal
from trainables.runtime.device import DEVICE_TYPES
from trainables.runtime.warm_trainable import WarmTrainable
from trainables.runtime.worker_group import WorkerGroupSpec

MIGRATION = "PT_HPU_GPU_MIGRATION"


def environment_of(config: Mapping[str, Any]) -> dict[str, str]:
    return {MIGRATION: "1"} if config["gpu_migration"] else {}


@pytest.fixture
def trainable(ray_here: None, tmp_path: Path) -> Iterator[WarmTrainable]:
    spec = WorkerGroupSpec(
        train_loop=environment_at_start, num_workers=1, device=DEVICE_TYPES["cpu"], storage=str(tmp_path)
    )
    made = tune.with_parameters(WarmTrainable, spec=spec, settings={}, environment_of=environment_of)(
        {"gpu_migration": False}
    )
    yield made
    made.stop()


def test_the_group_is_started_anew_for_another_environment_and_only_then(trainable: WarmTrainable) -> None:
    """The loop reports what its process was started with, before any import: torch reads some variables but once."""
    seen = []
    for gpu_migration in (False, False, True, True):
        trainable.reset({"gpu_migration": gpu_migration})
        result = trainable.train()
        seen.append((result["worker_pid"], result[MIGRATION]))
        assert result[names.START_SECONDS] >= 0
    assert [value for _, value in seen] == ["unset", "unset", "1", "1"]
    assert seen[0] == seen[1]
    assert seen[2] == seen[3] != seen[0]


def test_workers_that_hang_are_killed_and_the_trial_goes_on(ray_here: None, tmp_path: Path) -> None:
    spec = WorkerGroupSpec(
        train_loop=stopping_once, num_workers=1, device=DEVICE_TYPES["cpu"], storage=str(tmp_path), hung_after_s=3
    )
    settings = {"been_here": str(tmp_path / "been-here")}
    made = tune.with_parameters(WarmTrainable, spec=spec, settings=settings, environment_of=lambda _: {}, retries=1)({})
    first = made.train()
    made.save(str(tmp_path / "checkpoint"))
    second, third = made.train(), made.train()
    made.stop()
    assert [result["epoch"] for result in (first, second, third)] == [1, 2, 3]
    assert second[names.LOST_SECONDS] >= 3
    assert second["worker_pid"] == third["worker_pid"] != first["worker_pid"]
    assert not psutil.pid_exists(first["worker_pid"])


def test_a_checkpoint_that_is_gone_or_torn_is_passed_over(trainable: WarmTrainable, tmp_path: Path) -> None:
    checkpoints = [tmp_path / "trial-001" / f"checkpoint_{number:06d}" for number in range(2)]
    for report, checkpoint in enumerate(checkpoints, start=1):
        checkpoint.mkdir(parents=True)
        (checkpoint / "state").write_text("whole")
        seal(checkpoint, report)
    known = SimpleNamespace(checkpoint=tune.Checkpoint(str(checkpoints[1])), metrics={TRAINING_ITERATION: 2})
    shutil.rmtree(checkpoints[1])
    trainable.restore(known)
    assert (trainable._checkpoint, trainable._saved_at) == (str(checkpoints[0]), 1)
    assert trainable.iteration == 2  # the second report is trained again, and not made again
    (checkpoints[0] / "state").write_text("")
    trainable.restore(known)
    assert (trainable._checkpoint, trainable._saved_at) == (None, 0)
