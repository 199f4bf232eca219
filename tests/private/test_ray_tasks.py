"""What this project uses of Ray's tasks that Ray does not promise to keep."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest
from ray import actor, remote_function
from ray._private.worker import Worker

from gaudi_tune.private import ray_tasks


def test_ray_asks_the_hook_before_it_starts_a_task_and_tunes_property_where_to_place_it() -> None:
    assert isinstance(Worker.should_capture_child_tasks_in_placement_group, property)
    for module in (remote_function, actor):
        source = inspect.getsource(module)
        assert "worker.should_capture_child_tasks_in_placement_group" in source
    assert "_task_launch_hook(self._function_descriptor, resources, scheduling_strategy)" in inspect.getsource(
        remote_function
    )
    assert "_actor_launch_hook(" in inspect.getsource(actor)


def test_a_task_for_more_than_trials_leave_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {
        "trial": {"state": "CREATED", "bundles": {0: {"CPU": 1.0}, 1: {"CPU": 2.0}}},
        "gone": {"state": "REMOVED", "bundles": {0: {"CPU": 8.0}}},
    }
    monkeypatch.setattr(ray_tasks, "placement_group_table", lambda: groups)
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 4.0})
    monkeypatch.setattr(ray_tasks, "_checked", set())
    function = SimpleNamespace(class_name="", function_name="double")
    for resources in ({"CPU": 1.0}, {"CPU": 0.0}, {}):
        ray_tasks._check_resources(function, resources, "DEFAULT")
    with pytest.raises(RuntimeError, match="double needs 2 CPU and would wait for ever: trials have booked 3 of the 4"):
        ray_tasks._check_resources(function, {"CPU": 2.0}, "DEFAULT")
    for resource in ("GPU", "license"):  # of which this Ray has none
        with pytest.raises(RuntimeError, match=f"double needs 1 {resource} .* booked 0 of the 0 {resource}.*with less"):
            ray_tasks._check_resources(function, {"CPU": 1.0, resource: 1.0}, "DEFAULT")
    ray_tasks._check_resources(function, {"CPU": 2.0}, object())  # which names a placement group
