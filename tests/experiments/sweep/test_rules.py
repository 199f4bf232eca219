"""The rules by which trials end and checkpoints are written, without Ray's processes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.air.execution import ResourceRequest
from ray.air.execution._internal import RayActorManager
from ray.air.execution._internal.tracked_actor_task import TrackedActorTask
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError
from ray.tune.experiment import Trial
from ray.tune.result import SHOULD_CHECKPOINT

from experiments.sweep.budget import Budget
from experiments.sweep.checkpoints import ChooseCheckpoints
from experiments.sweep.outcome import end_of, why_diverged
from experiments.sweep.retries import leave_errors_of_workers, take_killed_actors_for_lost
from experiments.sweep.schedulers.by_name import TrialEnds
from tests.experiments.sweep.quadratic import QUADRATIC
from trainables.runtime.group_errors import LostTooOftenError, StartHungError, WorkerRaisedError, WorkersLostError


@pytest.mark.parametrize(
    ("result", "ends", "outcome"),
    [
        ({"epoch": 2, "score": 0.1}, False, "stopped early"),
        ({"epoch": 3, "score": 0.1}, True, "finished"),
        ({"epoch": 1, "score": math.nan}, True, "failed"),
        ({"epoch": 1, "score": 0.1, "train_loss": math.inf}, True, "failed"),
        ({"epoch": 1, "score": 0.1, "gradient_ratio": math.nan}, False, "stopped early"),
        ({"training_iteration": 3, "score": 0.1}, True, "finished"),
    ],
)
def test_a_trial_ends_at_its_budget_or_when_it_diverges(result: dict[str, Any], ends: bool, outcome: str) -> None:
    assert TrialEnds("score", Budget(epochs=3))("a", result) is ends
    assert end_of(result, "score", Budget(epochs=3)) == outcome


def test_a_diverged_trial_says_of_what() -> None:
    assert why_diverged({"epoch": 4, "val_loss": math.nan}, "score") == "diverged: val_loss is nan after epoch 4"


class Reporting:
    """As much of a trial as the rules look at."""

    def __init__(self, trial_id: str = "a") -> None:
        self.trial_id = trial_id


def wanted(rule: ChooseCheckpoints, score: float, done: bool = False, trial: Any = None) -> bool:
    result = {"score": score, "done": done}
    rule.on_trial_result(0, [], trial or Reporting(), result)
    return bool(result.get(SHOULD_CHECKPOINT))


def test_the_best_so_far_and_the_best_end_get_a_checkpoint() -> None:
    rule = ChooseCheckpoints(QUADRATIC, every_s=3600)
    rule.on_trial_start(0, [], cast(Any, Reporting()))
    assert [wanted(rule, score) for score in (0.5, 0.4, 0.5, 0.6, math.nan)] == [True, False, True, True, False]
    assert [wanted(rule, score, done=True) for score in (0.3, 0.2, 0.4)] == [True, False, True]
    restored = ChooseCheckpoints(QUADRATIC, every_s=3600)
    restored.set_state(rule.get_state())
    assert restored.get_state() == {"best": 0.6, "best_at_end": 0.4}


def test_a_trial_that_has_trained_for_a_while_gets_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("experiments.sweep.checkpoints.time.monotonic", lambda: now)
    rule, trial = ChooseCheckpoints(QUADRATIC, every_s=60), Reporting()
    rule.on_trial_start(0, [], cast(Any, trial))
    assert wanted(rule, 0.9, trial=trial)
    due = {}
    for moment in (1059.0, 1060.0, 1119.0, 1120.0):
        now = moment
        due[moment] = wanted(rule, 0.1, trial=trial)
    assert due == {1059.0: False, 1060.0: True, 1119.0: False, 1120.0: True}
    assert wanted(rule, 0.5, done=True, trial=trial)
    now = 2000.0
    assert not wanted(rule, 0.1, done=True, trial=trial)


@pytest.mark.parametrize(
    ("value", "trial", "best", "leads"),
    [
        (0.1, 7, None, True),
        (0.2, 7, (0.1, 2), True),
        (0.1, 7, (0.2, 2), False),
        (0.1, 7, (0.1, 2), False),
        (0.1, 1, (0.1, 2), True),  # it reports later, and has the lower number
        (math.nan, 1, (0.1, 2), False),
        (math.nan, 1, None, False),
    ],
)
def test_of_equal_values_that_of_the_lower_number_is_the_best(
    value: float, trial: int, best: tuple[float, int] | None, leads: bool
) -> None:
    assert QUADRATIC.leads(value, trial, best) is leads


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
    leave_errors_of_workers()
    leave_errors_of_workers()  # once is enough
    trial = Trial("any", stub=True, max_failures=2)
    trial.storage = SimpleNamespace(trial_driver_staging_path=None)  # it writes its error nowhere
    trial.handle_error(error)
    assert trial.should_recover() is again
    assert trial.num_failures == 1


def test_a_trial_actor_that_ray_killed_for_memory_is_lost_and_does_not_end_the_sweep() -> None:
    take_killed_actors_for_lost()
    take_killed_actors_for_lost()  # once is enough
    nothing_to_book = SimpleNamespace(request_resources=lambda **_: None, free_resources=lambda **_: None)
    manager, told = RayActorManager(cast(Any, nothing_to_book)), []
    request = ResourceRequest([{"CPU": 1}])
    actor = manager.add_actor(SimpleNamespace, {}, request, on_error=lambda _, error: told.append(error))
    manager._live_actors_to_ray_actors_resources[actor] = (None, request)
    killed = OutOfMemoryError("2 worker(s) were killed due to the node running low on memory")
    manager._actor_task_failed(TrackedActorTask(actor), killed)
    assert isinstance(told[0], RayActorError)
    assert str(told[0]).splitlines()[-1].startswith("out of memory on the host")
