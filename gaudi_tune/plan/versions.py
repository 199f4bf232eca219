"""Checking that a sweep can do without what is missing in the installed versions of libraries."""

from __future__ import annotations

import os

from gaudi_tune.base.errors import SweepError
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.private.surfaces import ANY_VERSION, SURFACES, reason_off, surfaces_off, tested

NO_GROWTH = {"moves", "bookings", "lean-trainer"}
"""The surfaces without which no trial moves to other devices."""


def check_versions(device: DeviceType) -> tuple[str, ...]:
    """Return the names of the surfaces that are off in this sweep.

    Raises:
        SweepError: A sweep would lose work without one of them, or these devices need it.
    """
    disabled = tuple(surface.name for surface in surfaces_off())
    for name in disabled:
        surface = SURFACES[name]
        if os.environ.get(ANY_VERSION) == "1":
            continue
        if not surface.fallback or (name == "lean-trainer" and device.exclusive):
            raise SweepError(
                f"{name}: {reason_off(name)}, and without this no sweep {surface.gives}; {tested(surface.library)} "
                f"works. {ANY_VERSION}=1 has the sweep begin nevertheless"
            )
    return disabled
