"""Finds the CPU cores near an HPU module, which are those of its NUMA node, in /sys. This touches no device."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from gaudi_tune.devices.module_owners import DEVICE_FILES, device_root, module_files

logger = logging.getLogger(__name__)

BIND = "GAUDI_TUNE_BIND_CORES"
"""This variable, set to 0, leaves workers on all cores."""
NODES = "sys/devices/system/node"


def numa_node_of(module: int) -> int | None:
    """Return the NUMA node of a module; None if the driver does not name one, as on a machine with a single node."""
    root = device_root()
    files = [file for file, module_of_file in module_files().items() if module_of_file == module]
    for file in files:
        for _, _, sysfs_folder in DEVICE_FILES:
            with suppress(OSError, ValueError):
                node = int((root / sysfs_folder / file.name / "device" / "numa_node").read_text())
                return node if node >= 0 else None
    return None


def cores_of(node: int) -> set[int]:
    """Return the cores of a NUMA node that this process may use."""
    cores: set[int] = set()
    with suppress(OSError):
        cpulist = (device_root() / NODES / f"node{node}" / "cpulist").read_text().strip()  # for example 0-3,8-11
        for part in filter(None, cpulist.split(",")):
            start, _, end = part.partition("-")
            cores.update(range(int(start), int(end or start) + 1))
    return cores & os.sched_getaffinity(0)


def bind_to_cores_near(module: int) -> set[int]:
    """Bind all threads of this process, and processes that it starts later, to the cores near a module.

    Returns:
        The cores; empty if the process was not bound, because :data:`BIND` forbids it, the near cores are unknown, or
        the process may use none of them.
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
