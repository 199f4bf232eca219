"""Which cores are near which HPU module: those of its NUMA node. Reads /sys, touches no device."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from gaudi_tune.devices.module_owners import DEVICE_FILES, device_root, module_files

logger = logging.getLogger(__name__)

BIND = "GAUDI_TUNE_BIND_CORES"
"""Variable: 0 leaves workers on all cores."""
NODES = "sys/devices/system/node"


def numa_node_of(module: int) -> int | None:
    """Return the NUMA node of a module; None where the driver, or a machine with one node, does not say."""
    root = device_root()
    for file in (file for file, own in module_files().items() if own == module):
        for _, _, in_sysfs in DEVICE_FILES:
            with suppress(OSError, ValueError):
                node = int((root / in_sysfs / file.name / "device" / "numa_node").read_text())
                return node if node >= 0 else None
    return None


def cores_of(node: int) -> set[int]:
    """Return the cores of a NUMA node that this process may use."""
    cores: set[int] = set()
    with suppress(OSError):
        for part in filter(None, (device_root() / NODES / f"node{node}" / "cpulist").read_text().strip().split(",")):
            first, _, last = part.partition("-")
            cores.update(range(int(first), int(last or first) + 1))
    return cores & os.sched_getaffinity(0)


def bind_to_cores_near(module: int) -> set[int]:
    """Keep all threads of this process, and processes that it starts from now on, on the cores near a module.

    Returns:
        The cores; empty if it stays where it was: nobody says which are near, or it may use none of them, or it must
        not be bound.
    """
    node = numa_node_of(module)
    if node is None or os.environ.get(BIND) == "0" or not (cores := cores_of(node)):
        return set()
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), cores)
        except OSError as error:  # noqa: PERF203  (a thread may have ended)
            logger.warning("a thread is not bound to the cores near module %d: %s", module, error)
    return cores
