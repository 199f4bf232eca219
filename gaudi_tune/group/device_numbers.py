"""Workers on devices of given numbers: Ray hands out the lowest free ones, so the lower ones are booked meanwhile."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gaudi_tune.group.errors import DevicesNotReadyError

FREED_WITHIN_S = 10.0
"""How long to wait for devices of certain numbers: a trial that has just ended may still hold them. After that, another
trial must have taken them since they were chosen."""
LOOK_EVERY_S = 1.0
"""How often to look whether they are free."""


@contextmanager
def lower_numbers_booked(resource: str, numbers: Collection[int]) -> Iterator[None]:
    """Book the free devices of this node with lower numbers inside the block, so that Ray hands out ``numbers``.

    For example, a group is to have devices 2 and 3 of four, and 0 is another trial's::

        device             0        1          2          3
        before             taken    free       free       free
        all are booked     taken    booked     booked     booked
        inside the block   taken    booked     free       free       Ray's lowest free ones are 2 and 3
        after the block    taken    free       the group  the group

    Two groups that want different sets cannot wait for each other: the group with the lower set holds nothing that the
    other one wants.

    Raises:
        DevicesNotReadyError: The devices are not free within :data:`FREED_WITHIN_S`.
    """
    booked: dict[int, PlacementGroup] = {}
    ends_at = time.monotonic() + FREED_WITHIN_S
    try:
        while missing := {*numbers} - booked.keys():
            if time.monotonic() > ends_at:
                raise DevicesNotReadyError(f"{resource} {sorted(missing)} are not free")
            group = placement_group([{resource: 1.0}])
            number = _booked_number(group, resource) if group.wait(LOOK_EVERY_S) else None
            if number is not None and number <= max(numbers):
                booked[number] = group
            else:
                remove_placement_group(group)
                time.sleep(LOOK_EVERY_S)
        for number in numbers:
            remove_placement_group(booked.pop(number))
        yield
    finally:
        for group in booked.values():
            remove_placement_group(group)


def _booked_number(group: PlacementGroup, resource: str) -> int | None:
    """Return the number of the device that a placement group has booked; None if the process that was asked died.

    Ray tells the number only to a process that gets the device.
    """
    strategy = PlacementGroupSchedulingStrategy(group)
    accelerator_ids = ray.remote(num_cpus=0, resources={resource: 1.0}, scheduling_strategy=strategy)(
        lambda: ray.get_runtime_context().get_accelerator_ids()[resource]
    )
    try:
        return int(ray.get(accelerator_ids.remote())[0])
    except RayError:
        return None
