"""Finds the CPU cores near an HPU module, which are those of its NUMA node, in /sys. This touches no device."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

DEVICE_ROOT = "GAUDI_TUNE_DEVICE_ROOT"
"""Variable with the folder that holds dev/ and sys/; / if it is not set."""
BIND = "GAUDI_TUNE_BIND_CORES"
"""This variable, set to 0, leaves workers on all cores."""


def device_root() -> Path:
    """Return the folder that holds dev/ and sys/."""
    return Path(os.environ.get(DEVICE_ROOT) or "/")


def numa_node_of(module: int) -> int | None:
    """Return the NUMA node of a module; None if the driver does not name one, as on a machine with a single node."""
    for device in (device_root() / "sys/class/accel").glob("accel*/device"):  # its number is not that of its module
        with suppress(OSError, ValueError):
            if int((device / "module_id").read_text()) == module:
                node = int((device / "numa_node").read_text())
                return node if node >= 0 else None
    return None


def cores_of(node: int) -> set[int]:
    """Return the cores of a NUMA node that this process may use."""
    cores: set[int] = set()
    with suppress(OSError):
        cpulist = (device_root() / f"sys/devices/system/node/node{node}/cpulist").read_text()  # for example 0-3,8-11
        for part in filter(None, cpulist.strip().split(",")):
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
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(int(thread.name), cores)
    return cores
