"""How many worker groups of which width fit on the devices."""

from __future__ import annotations

from experiments.sweep.define.errors import SweepError
from trainables.runtime.devices.find import Devices


def pack(devices: Devices, workers_per_trial: int) -> int:
    """Return how many worker groups, and so trials at a time, the devices hold; an error names the possible widths."""
    groups = groups_of(devices, workers_per_trial) if workers_per_trial > 0 else 0
    if not groups:
        possible = [width for width in range(1, devices.count + 1) if groups_of(devices, width)]
        nodes = f" on {len(devices.nodes)} nodes" if len(devices.nodes) > 1 else ""
        raise SweepError(
            f"--workers-per-trial {workers_per_trial}: not possible with {devices.count} {devices.type.kind} "
            f"devices{nodes}; possible here: {', '.join(map(str, possible))}"
        )
    return groups


def groups_of(devices: Devices, width: int) -> int:
    """Return how many groups of ``width`` fit: each within one node, or over whole nodes of the largest size."""
    supported = devices.type.widths
    largest = supported[-1] if supported else max(devices.nodes)
    if width > largest:
        whole_nodes = devices.nodes.count(largest)
        return 0 if width % largest else whole_nodes // (width // largest)
    if supported and width not in supported:
        return 0
    return sum(count // width for count in devices.nodes)
