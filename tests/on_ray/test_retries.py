"""Which failures Tune tries again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.air.execution import ResourceRequest
from ray.air.execution._internal import RayActorManager
from ray.air.execution._internal.tracked_actor_task import TrackedActorTask
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError
from ray.tune.experiment import Trial

from gaudi_tune.group.errors import LostTooOftenError, StartHungError, WorkerRaisedError, WorkersLostError
from gaudi_tune.on_ray.tuner import retry_losses_alone


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (RayTaskError("train", "traceback", WorkerRaisedError("no such column")), False),
        (RayTaskError("train", "traceback", LostTooOftenError("killed")), False),
        (RayTaskError("train", "traceback", WorkersLostError("killed")), True),
        (RayTaskError("train", "traceback", StartHungError("no report")), True),
        (RayActorError(), True),
    ],
)
def test_an_error_of_the_train_loop_is_final_and_a_loss_is_not(error: Exception, again: bool) -> None:
    retry_losses_alone()
    retry_losses_alone()  # once is enough
    trial = Trial("any", stub=True, max_failures=2)
    trial.storage = SimpleNamespace(trial_driver_staging_path=None)  # it writes its error nowhere
    trial.handle_error(error)
    assert trial.should_recover() is again
    assert trial.num_failures == 1


def test_a_trial_actor_that_ray_killed_for_memory_is_lost_and_does_not_end_the_sweep() -> None:
    retry_losses_alone()
    retry_losses_alone()  # once is enough
    nothing_to_book = SimpleNamespace(request_resources=lambda **_: None, free_resources=lambda **_: None)
    manager, told = RayActorManager(cast(Any, nothing_to_book)), []
    request = ResourceRequest([{"CPU": 1}])
    actor = manager.add_actor(SimpleNamespace, {}, request, on_error=lambda _, error: told.append(error))
    manager._live_actors_to_ray_actors_resources[actor] = (None, request)
    killed = OutOfMemoryError("2 worker(s) were killed due to the node running low on memory")
    manager._actor_task_failed(TrackedActorTask(actor), killed)
    assert isinstance(told[0], RayActorError)
    assert str(told[0]).splitlines()[-1].startswith("out of memory on the host")
