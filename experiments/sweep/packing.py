"""How many worker groups of which width fit on the devices."""

from __future__ import annotations

from experiments.sweep.errors import SweepError
from trainables.runtime.device import Devices

HPU_WIDTHS = (1, 2, 4, 8)
"""Workers per trial that a Gaudi node supports; beyond, whole nodes of 8."""


def pack(devices: Devices, workers_per_trial: int) -> int:
    """Return how many worker groups, and so trials at a time, the devices hold.

    Raises:
        SweepError: The width is not possible here; names the widths that are.
    """
    possible = possible_widths(devices)
    if workers_per_trial not in possible:
        raise SweepError(
            f"--workers-per-trial {workers_per_trial}: not possible with {devices.count} {devices.type.kind} "
            f"device(s); possible here: {', '.join(map(str, possible))}"
        )
    return devices.count // workers_per_trial


def possible_widths(devices: Devices) -> list[int]:
    """Return every number of workers per trial that these devices allow."""
    widths = range(1, devices.count + 1)
    if devices.type.kind == "hpu":
        return [n for n in widths if n in HPU_WIDTHS or n % HPU_WIDTHS[-1] == 0]
    return list(widths)
