"""What a train loop starts through Ray in a worker: where Ray places it, and Ray's hook before each start."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.util.placement_group import placement_group_table

from gaudi_tune.private.surfaces import part

with suppress(ImportError):
    from ray import actor, remote_function
    from ray._private.worker import Worker

_checked = set[tuple[str, float]]()
"""The resources for which there is room."""


@part("tasks-of-loops", lambda: None)
def tasks_outside_trial() -> None:
    """Have Ray place what this process starts outside the trial's cores, and raise an error if no others exist.

    Tune has all that a trial starts placed on what the trial has booked, which the worker itself uses up. Such a task
    would wait for ever. There is no public setting for the tasks that the user's own libraries start.
    """
    Worker.should_capture_child_tasks_in_placement_group = property(lambda worker: False)
    remote_function._task_launch_hook = actor._actor_launch_hook = _check_resources
    _checked.clear()


def _check_resources(function: Any, resources: Mapping[str, float], strategy: Any) -> None:
    """Raise an error if something needs more cores, or of another resource, than trials ever leave free."""
    needs = {*resources.items()} - _checked
    if not isinstance(strategy, str):  # a group of the user's own has its resources
        return
    for resource, wanted in (need for need in needs if need[1]):
        total = ray.cluster_resources().get(resource, 0.0)
        booked = sum(
            bundle.get(resource, 0.0)
            for group in placement_group_table().values()
            if group["state"] == "CREATED"
            for bundle in group["bundles"].values()
        )
        if total - booked < wanted:
            name, fix = function.class_name or function.function_name, "num_cpus=0" if resource == "CPU" else "less"
            raise RuntimeError(
                f"{name} needs {wanted:g} {resource} and would wait for ever: trials have booked {booked:g} of the "
                f"{total:g} {resource} of this Ray; start it with {fix}, or train fewer trials at a time "
                f"(max_concurrent_trials=N)"
            )
    _checked.update(needs)
