"""Which failures Tune tries again."""

from __future__ import annotations

import pytest
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError

from gaudi_tune.base.failure import FailureKind
from gaudi_tune.group.errors import (
    LostTooOftenError,
    StartHungError,
    WorkerGroupError,
    WorkerRaisedError,
    WorkersLostError,
    failure_of,
)
from gaudi_tune.on_ray.trials import last_failure
from gaudi_tune.on_ray.tuner import retry_losses_alone
from tests.private.test_ray_tune import failed, manager_with_actor


@pytest.mark.parametrize("text", ["no such column", "killed", "the node was low on memory", "its node has died"])
@pytest.mark.parametrize(
    ("error_class", "again"),
    [(WorkerRaisedError, False), (LostTooOftenError, False), (WorkersLostError, True), (StartHungError, True)],
)
def test_an_error_of_the_train_loop_is_final_and_a_loss_is_not_whatever_they_say(
    error_class: type[WorkerGroupError], again: bool, text: str
) -> None:
    assert is_retried(RayTaskError("train", "traceback", error_class(text))) is again


@pytest.mark.parametrize("text", ["killed", "the train loop's report is unusable"])
def test_a_trial_actor_that_is_lost_is_replaced(text: str) -> None:
    assert is_retried(RayActorError(error_msg=text))
    assert is_retried(RayTaskError("train", "traceback", RayActorError(error_msg=text)))


def is_retried(error: Exception) -> bool:
    retry_losses_alone()
    retry_losses_alone()  # once is enough
    trial = failed(error)
    assert trial.num_failures == 1
    assert last_failure(trial) == failure_of(error)
    return bool(trial.should_recover())


def test_a_trial_actor_that_ray_killed_for_memory_is_lost_and_does_not_end_the_sweep() -> None:
    retry_losses_alone()
    told: list[Exception] = []
    manager, task = manager_with_actor(lambda _, error: told.append(error))
    manager._actor_task_failed(task, OutOfMemoryError("2 worker(s) were killed due to the node running low on memory"))
    assert isinstance(told[0], RayActorError)
    assert failure_of(told[0]).kind == FailureKind.HOST_OUT_OF_MEMORY
    assert str(told[0]).splitlines()[-1].startswith("out of memory on the host")
