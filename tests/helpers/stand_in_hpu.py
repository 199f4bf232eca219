"""Running things with the stand-in for Gaudis (tests/stand_in), and reading who had which module when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.devices.cores import DEVICE_ROOT
from tests.helpers.forked import Forked

STAND_IN = PROJECT_ROOT / "tests" / "stand_in"
FORGOTTEN = (
    "HABANA_VISIBLE_MODULES", "HLS_MODULE_ID", "WORLD_SIZE", "LOCAL_RANK", "PT_HPU_LAZY_MODE", "LD_PRELOAD",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
)  # fmt: skip


class Ownership(NamedTuple):
    """A process had a module; ``until`` is None if it never gave it back itself."""

    module: int
    pid: int
    since: float
    until: float | None
    cores: tuple[int, ...]
    """On which it ran when it took the module."""


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a process that finds Gaudis, whose locks are in ``folder``."""
    own = {name: value for name, value in os.environ.items() if name not in FORGOTTEN}
    modules = os.pathsep.join(filter(None, (str(STAND_IN), str(PROJECT_ROOT), os.environ.get("PYTHONPATH"))))
    paths = {"PYTHONPATH": modules, "HABANA_STAND_IN_DIR": str(folder), DEVICE_ROOT: str(folder)}
    return {**own, **paths, **variables}


def lay_out_devices(folder: Path, modules: int) -> None:
    """Make the files that a driver shows of its devices: on some servers their numbers run against the modules'."""
    for index, module in enumerate(reversed(range(modules))):
        file = folder / "dev" / "accel" / f"accel{index}"
        in_sysfs = folder / "sys" / "class" / "accel" / file.name / "device"
        file.parent.mkdir(parents=True, exist_ok=True)
        in_sysfs.mkdir(parents=True)
        file.symlink_to(folder / f"module-{module}")  # which its owner has open
        (in_sysfs / "module_id").write_text(f"{module}\n")


def lay_out_nodes(folder: Path, cpulists: list[str]) -> None:
    """Make a NUMA node of each list of cores, and a module of the same number on it."""
    lay_out_devices(folder, len(cpulists))
    for node, cpulist in enumerate(cpulists):
        file = folder / "sys" / "devices" / "system" / "node" / f"node{node}" / "cpulist"
        file.parent.mkdir(parents=True)
        file.write_text(f"{cpulist}\n")
    for device in (folder / "sys" / "class" / "accel").iterdir():
        (device / "device" / "numa_node").write_text((device / "device" / "module_id").read_text())


def start(code: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """Start Python with the stand-in."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(folder, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def fork(code: str, folder: Path, **variables: str) -> Forked:
    """Start Python with the stand-in and with torch, which takes a tenth of the time; not for what must come before."""
    return Forked(code, environment(folder, **variables))


def forked_output_of(code: str, folder: Path, **variables: str) -> str:
    """Run it, and return what it printed."""
    return fork(code, folder, **variables).printed()


def output_of(code: str, folder: Path, **variables: str) -> str:
    """Run Python with the stand-in, and return what it printed."""
    return start(code, folder, **variables).communicate(timeout=400)[0]


def ownerships(folder: Path) -> list[Ownership]:
    """Return who had which module, in the order of their beginnings."""
    owned: list[Ownership] = []
    for line in (folder / "acquisitions.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["what"] == "acquired":
            owned.append(Ownership(entry["module"], entry["pid"], entry["time"], None, tuple(entry["cores"])))
        else:
            index = next(i for i, o in enumerate(owned) if (o.module, o.pid) == (entry["module"], entry["pid"]))
            owned[index] = owned[index]._replace(until=entry["time"])
    return owned


def compilations(folder: Path) -> list[dict[str, Any]]:
    """Return each compilation of a graph in their order: its recipe, by which process, and of which part of a model."""
    log = folder / "compilations.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def double_owners(owned: list[Ownership]) -> int:
    """Return how often a module was acquired while another process had it."""
    by_module = defaultdict(list)
    for ownership in owned:
        by_module[ownership.module].append(ownership)
    return sum(
        earlier.until is not None and later.since < earlier.until
        for entries in by_module.values()
        for earlier, later in pairwise(entries)
    )
