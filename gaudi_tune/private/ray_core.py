"""Ray's core: what it starts, placement groups that nobody will free, the HPUs that it finds, its words for a full
host, and how much it sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray._private import parameter, ray_constants, services, utils
from ray._private.resource_and_label_spec import ResourceAndLabelSpec
from ray._private.state import state
from ray.core.generated.gcs_pb2 import PlacementGroupTableData
from ray.util.placement_group import PlacementGroup, remove_placement_group

HOST_OUT_OF_MEMORY = "low on memory"
"""What Ray says of each process that it kills because the host's memory is full. Not every such error has a type: a
killed worker arrives as text inside the errors of Ray Train."""
CLASS_MAY_HAVE: int = ray_constants.FUNCTION_SIZE_ERROR_THRESHOLD
"""How many bytes the class of an actor may have, with all that goes with it."""


LEAN: dict[str, Any] = {
    # Imports no Ray, which Ray's own does before each process, and the process once more: 0.4 s of CPU.
    "setup_worker_path": str(Path(__file__).with_name("setup_worker.py")),
    # One sends what workers print to the driver, which does not want it; the other asks a cloud for machines.
    "include_log_monitor": False,
    "no_monitor": True,
}


@contextmanager
def lean_ray() -> Iterator[None]:
    """Have ``ray.init("local")`` inside the block start less: three processes fewer, and its workers sooner.

    The third is that of the dashboard, which also starts where there is to be none, and is waited for. Its agent on the
    node, without which there is no Ray, serves nobody then: it starts as where the dashboard is not installed.
    """
    usual, start_dashboard, why_minimal = (
        parameter.RayParams,
        services.start_api_server,
        utils.get_dashboard_dependency_error,
    )
    parameter.RayParams = partial(usual, **LEAN)
    services.start_api_server = lambda *given, **more: ("", None)
    utils.get_dashboard_dependency_error = lambda: ImportError("there is to be none")
    try:
        yield
    finally:
        parameter.RayParams, services.start_api_server = usual, start_dashboard
        utils.get_dashboard_dependency_error = why_minimal


def free_orphans() -> None:
    """Free the devices that a dead trial actor has left booked.

    Each group of workers has a placement group. Ray removes that only when both its creator and the
    whole job are dead (ray#54305): the devices would stay booked until the end of the sweep. Ray Train has an actor in
    each group against that, which needs Ray's dashboard; this does without both.
    """
    _remove(group for group in _placement_groups() if is_orphan(group))


def free_own() -> None:
    """Free what this actor has booked: Ray Train's controller forgets a placement group whose workers failed while they
    started (Ray 2.60)."""
    own = ray.get_runtime_context().get_actor_id()
    _remove(group for group in _placement_groups() if group.creator_actor_id.hex() == own)


def waiting_actors() -> set[str]:
    """Return the ids of the actors whose placement group waits for something that others have booked."""
    pending = PlacementGroupTableData.PENDING
    return {group.creator_actor_id.hex() for group in _placement_groups() if group.state == pending}


def _placement_groups() -> list[PlacementGroupTableData]:
    """Return this job's placement groups that book something.

    ``ray.util.placement_group_table()`` is public, but names neither the job nor the creator of a group.
    """
    job = ray.get_runtime_context().get_job_id()
    entries = state._connect_and_get_accessor().get_placement_group_table()
    groups = [PlacementGroupTableData.FromString(entry) for entry in entries]
    removed = PlacementGroupTableData.REMOVED
    return [group for group in groups if group.creator_job_id.hex() == job and group.state != removed]


def _remove(groups: Iterable[PlacementGroupTableData]) -> None:
    for group in groups:
        remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))


def is_orphan(group: PlacementGroupTableData) -> bool:
    """Whether an actor created the group, and is dead."""
    # For a driver's group Ray sets creator_actor_dead as well; the creator's id is nil there.
    created_by_an_actor = not ray.ActorID(group.creator_actor_id).is_nil()
    return created_by_an_actor and group.creator_actor_dead and not group.is_detached


def accelerators_found_by_ray() -> tuple[str, int]:
    """Return the name and the number of what Ray would find on this machine: one kind of accelerator, the first of its
    own list; ("accelerator", 0) for none. ``ray.cluster_resources()`` says so only once Ray runs."""
    manager, count = ResourceAndLabelSpec._get_current_node_accelerator(None, {})
    return (manager.get_resource_name() if manager else "accelerator"), count
