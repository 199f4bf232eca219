"""Placement groups that Ray forgets: they book devices for a group that is gone."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray import tune
from ray._private.state import state as ray_state  # no public API tells who made a placement group
from ray.core.generated.gcs_pb2 import PlacementGroupTableData
from ray.util.placement_group import PlacementGroup, remove_placement_group

LOOK_EVERY_S = 2.0
"""How often to look for orphans while a sweep runs; one request to Ray, about 1 ms."""


class FreeOrphans(tune.Callback):
    """Gives devices that a failed group left booked to the groups that come after it."""

    def __init__(self) -> None:
        self._looked_at = 0.0

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Called by Tune all the time."""
        if time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            free_orphans()
            self._looked_at = time.monotonic()

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """Called by Tune when the sweep is over."""
        free_orphans()


def free_orphans() -> int:
    """Remove this job's placement groups whose maker, an actor, is dead, and return how many there were.

    Ray Train's controller makes the placement group of its workers. Ray removes it only when both the controller and
    the whole job are dead (ray#54305), and the controller itself forgets it when a worker group fails while it starts
    (Ray 2.60): the devices would stay booked until the end of the sweep.
    """
    job = ray.get_runtime_context().get_job_id()
    orphans = [group for group in _placement_groups() if group.creator_job_id.hex() == job and _is_orphan(group)]
    for orphan in orphans:
        remove_placement_group(PlacementGroup(ray.PlacementGroupID(orphan.placement_group_id)))
    return len(orphans)


def _placement_groups() -> list[PlacementGroupTableData]:
    accessor = ray_state._connect_and_get_accessor()
    return [PlacementGroupTableData.FromString(entry) for entry in accessor.get_placement_group_table()]


def _is_orphan(group: PlacementGroupTableData) -> bool:
    # Ray calls the maker dead, too, where a driver made the group; a driver has no actor's id.
    made_by_an_actor = not ray.ActorID(group.creator_actor_id).is_nil()
    gone = group.state == PlacementGroupTableData.REMOVED
    return made_by_an_actor and group.creator_actor_dead and not group.is_detached and not gone
