"""What the doctor looks at before it computes: variables, packages, the host, Ray, and who has which module."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from gaudi_tune.base.versions import installed_versions, version_of
from gaudi_tune.devices.cores import BIND, cores_of, numa_node_of
from gaudi_tune.devices.find import find_devices
from gaudi_tune.devices.gaudi_node import (
    AUTOLOAD,
    LAZY_MODE,
    MODULES,
    RECIPE_CACHE,
    present_modules,
    recipe_folder,
    visible_modules,
)
from gaudi_tune.devices.hl_smi import hl_smi
from gaudi_tune.devices.hpu import HPU
from gaudi_tune.devices.module_owners import find_owners

TORCH_OF_RELEASE = {
    "1.22": ("2.7.1",),
    "1.23": ("2.9",),
    "1.24": ("2.10", "2.11", "2.12", "2.13"),
}
"""Intel's releases, and torch in their containers. Older ones have torch 2.6 or less, with which models
do not compile: Dynamo has no ``recompile_limit`` there, and transformers asks for what torch 2.7 brought."""
HUGEPAGES_MB_PER_HPU = 95_000 // 8
"""Intel's figure for a pod of 8 HPUs is 95,000 MiB of 2 MiB pages. Other manifests of Intel's ask for less."""
MEMORY_GB_PER_HPU = 409 // 8
"""Intel's figure for a pod of 8 HPUs is 409 GiB."""
SHARED_MEMORY_GB = 8
"""Ray and loader workers hand tensors over in /dev/shm; Docker's own default is 64 MB."""
MEMINFO = Path("/proc/meminfo")
NETWORKS = Path("/sys/class/net")
SCALE_OUT = (
    "HCCL_SOCKET_IFNAME", "HCCL_OVER_OFI", "RDMAV_FORK_SAFE", "FI_EFA_USE_DEVICE_RDMA", "MLX5_SCATTER_TO_CQE",
)  # fmt: skip
"""Variables with which hccl sums gradients between nodes."""
IN_THE_WAY = {
    "HLS_MODULE_ID": ("every process takes that module", ("",)),
    "WORLD_SIZE": ("habana takes every process for one of a group, and may fail to be imported", ("", "0", "1")),
    "RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES": ("Ray does not tell workers which module is theirs", ("", "0")),
}
"""Variables that no shell should have, what they do, and values that do nothing."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    found: str
    fix: str = ""
    """What to do about it; empty if nothing is wrong."""
    warns: bool = False
    """Whether a sweep may run all the same."""


def versions() -> Finding:
    """Report which packages are installed."""
    text = ", ".join(f"{name} {version}" for name, version in installed_versions().items())
    return Finding("versions", f"Python {sys.version.split()[0]}, {text}")


def devices() -> Finding:
    """Report what a sweep would train on."""
    chosen = find_devices("auto", None)
    return Finding("devices", f"{chosen.count} {chosen.type.kind}: {chosen.reason}")


def shared_memory() -> Finding:
    """Check that /dev/shm is large enough."""
    size = shutil.disk_usage("/dev/shm").total / 2**30
    small = size < SHARED_MEMORY_GB
    return Finding("/dev/shm", f"{size:.1f} GiB", "docker run --ipc=host, or --shm-size=16g" if small else "")


def variables() -> Iterator[Finding]:
    """Check what the shell, or the image, has exported."""
    for name, (effect, harmless) in IN_THE_WAY.items():
        if os.environ.get(name, "") not in harmless:
            yield Finding(name, f"is {os.environ[name]}: {effect}", f"unset {name}")
    if "tcmalloc" in (preloaded := os.environ.get("LD_PRELOAD", "")):
        fix = "nothing: a sweep's workers start without it. Empty LD_PRELOAD if your own scripts crash"
        yield Finding("LD_PRELOAD", f"{preloaded}: Intel's ImageNet script crashes with it", fix, warns=True)
    if entry_points(group="torch.backends") and os.environ.get(AUTOLOAD) != "0":
        fix = f"nothing for a sweep that starts Ray; before ray start: export {AUTOLOAD}=0"
        yield Finding(AUTOLOAD, "every process that imports torch imports habana, for seconds", fix, warns=True)
    if HPU.is_lazy():
        fix, local = f"unset {LAZY_MODE}: models are compiled then", version_of("torch").partition("+")[2]
        if local.startswith(("git", "hpu")):
            yield Finding(LAZY_MODE, f"is {os.environ[LAZY_MODE]}: sweeps run in lazy mode", fix, warns=True)
        else:
            yield Finding(LAZY_MODE, f"is {os.environ[LAZY_MODE]}: only Intel's own torch has lazy mode", fix)


def release(plugin: str, torch: str) -> Finding:
    """Check that Intel released this habana-torch-plugin with this torch; "" means not installed."""
    if not plugin:
        return Finding("release", "habana_frameworks without habana-torch-plugin", "work in Intel's Gaudi container")
    found, number = f"habana-torch-plugin {plugin} with torch {torch}", _numbers(plugin)[:2]
    shipped = {_numbers(name): versions for name, versions in TORCH_OF_RELEASE.items()}
    if number > max(shipped):
        return Finding("release", f"{found}: newer than this version of the project knows")
    if number not in shipped:
        oldest = next(iter(TORCH_OF_RELEASE))
        return Finding("release", f"{found}: too old", f"take Intel's container of release {oldest} or later")
    if any(_numbers(torch)[: len(_numbers(version))] == _numbers(version) for version in shipped[number]):
        return Finding("release", found)
    fix = f"it belongs with torch {' or '.join(shipped[number])}: reinstall (make, or deploy/install_on_gaudi.sh)"
    return Finding("release", f"{found}: not the torch that Intel ships", fix)


def numpy() -> Finding:
    """Check that torch takes numpy's arrays: one that was built with numpy 1 takes none of numpy 2."""
    import numpy
    import torch

    found = f"numpy {numpy.__version__} with torch {torch.__version__}"
    try:
        torch.from_numpy(numpy.zeros(1))
    except RuntimeError as error:
        fix = "torch was built with numpy 1: .venv/bin/python -m pip install 'numpy<2' scipy pandas scikit-learn"
        return Finding("numpy", f"{found}: {error}", fix)
    return Finding("numpy", found)


def driver() -> Finding:
    """Check that the host's driver is of the container's release."""
    plugin, answers = version_of("habana-torch-plugin"), hl_smi("driver_version")
    if not answers:
        fix = "run it on the host: sudo hl-smi; in a container it comes with Intel's image"
        return Finding("driver", "unknown: hl-smi gave no answer", fix, warns=True)
    (version,) = answers[0]
    apart = bool(plugin) and _numbers(version)[:2] != _numbers(plugin)[:2]
    fix = "take the container of the driver's release, or have the driver of the container's installed" if apart else ""
    return Finding("driver", f"{version}{f', and habana-torch-plugin {plugin}' if apart else ''}", fix)


def hugepages(count: int) -> Finding:
    """Check that the host has enough huge pages for the driver's buffers."""
    info = _meminfo()
    have, need = info["HugePages_Total"] * info["Hugepagesize"] // 1024, count * HUGEPAGES_MB_PER_HPU
    fix = f"sysctl -w vm.nr_hugepages={need * 1024 // info['Hugepagesize']} (Intel's figure)" if have < need else ""
    return Finding("hugepages", f"{have} MiB", fix, warns=True)


def memory(count: int) -> Finding:
    """Check that the host has enough memory for one worker per HPU."""
    have, need = _meminfo()["MemTotal"] / 2**20, count * MEMORY_GB_PER_HPU
    fix = f"give the container {need} GiB (Intel's figure), or use fewer HPUs ({MODULES})" if have < need else ""
    return Finding("host memory", f"{have:.0f} GiB", fix, warns=True)


def logs() -> Finding:
    """Check that habana can write its logs; if it cannot, it fails at the first use."""
    folder = Path(os.environ.get("HABANA_LOGS", Path.home() / ".habana_logs"))
    return Finding("habana's logs", str(folder), "" if _writable(folder) else "set HABANA_LOGS to a writable folder")


def compiled_graphs() -> Finding:
    """Check where compiled graphs are kept, and whether others are in the way."""
    folder = recipe_folder()
    if not _writable(folder):
        return Finding("compiled graphs", f"{folder} cannot be written", "set GAUDI_TUNE_CACHE to a folder of yours")
    if configured := os.environ.get(RECIPE_CACHE):
        return Finding("compiled graphs", f"{RECIPE_CACHE}={configured}, and sweeps use {folder}",
                       f"unset {RECIPE_CACHE}; GAUDI_TUNE_CACHE says where sweeps keep theirs", warns=True)  # fmt: skip
    # Beside a folder is that of the groups that compile for others.
    others = [other for other in folder.parent.glob("*") if other.is_dir() and not other.name.startswith(folder.name)]
    size = sum(file.stat().st_size for other in others for file in other.rglob("*") if file.is_file()) / 2**20
    stale = f"; of other releases or chips {', '.join(other.name for other in others)}: {size:.0f} MiB"
    fix = f"rm -r {' '.join(map(str, others))}, if nobody uses them" if others else ""
    return Finding("compiled graphs", f"{folder}{stale if others else ''}", fix, warns=True)


def scale_out() -> Finding:
    """Report what hccl is told of the network between nodes; one node needs nothing of it."""
    found = ", ".join(f"{name}={os.environ[name]}" if name in os.environ else f"{name} not set" for name in SCALE_OUT)
    here = sorted(interface.name for interface in NETWORKS.glob("*"))
    named = [name for name in os.environ.get("HCCL_SOCKET_IFNAME", "").split(",") if name]
    unknown = [name for name in named if not any(interface.startswith(name) for interface in here)]
    if unknown:
        named_wrongly = f"HCCL_SOCKET_IFNAME: there is no {', '.join(unknown)}; here are {', '.join(here)}"
        return Finding("scale-out", found, named_wrongly)
    forced = "unset HCCL_OVER_OFI: set at all, it sends sums through host memory, even where Gaudis have a network"
    return Finding("scale-out", found, forced if "HCCL_OVER_OFI" in os.environ else "", warns=True)


def modules(count: int) -> Finding:
    """Check which modules this process may use: that they are here, and a set that Intel supports."""
    named, present = visible_modules(), present_modules()
    chosen = modules_here(count)
    listed = ",".join(map(str, present))
    if named is None and present and present != list(range(len(present))):
        fix = f"nothing for a sweep that starts Ray; before ray start: export {MODULES}={listed}"
        return Finding("modules", f"{listed}: the container was given devices by index", fix, warns=True)
    if named and present and not set(named) <= set(present):
        return Finding(
            "modules", f"{MODULES}={os.environ[MODULES]}, and here are {listed}", f"export {MODULES}={listed}"
        )
    reason = HPU.why_not_together(chosen) if len(chosen) in HPU.widths else f"{len(chosen)} modules"
    fix = f"use an aligned set of 1, 2, 4 or 8 modules: {MODULES}=0,1 or 0,1,2,3" if reason else ""
    return Finding("modules", ", ".join(map(str, chosen)) + (f": {reason}" if reason else ""), fix)


def cores(count: int) -> Iterator[Finding]:
    """Report on which cores the worker of each module will run."""
    if os.environ.get(BIND) == "0":
        yield Finding("cores", f"workers are not bound to any: {BIND}=0")
        return
    nodes = {module: numa_node_of(module) for module in modules_here(count)}
    if None in nodes.values():
        unknown = ", ".join(str(module) for module, node in nodes.items() if node is None)
        yield Finding("cores", f"workers are not bound to any: the driver names no NUMA node of module {unknown}")
    for node in sorted({node for node in nodes.values() if node is not None}):
        near = ", ".join(str(module) for module, own in nodes.items() if own == node)
        number = len(cores_of(node))
        fix = f"let the container use cores of NUMA node {node} (--cpuset-cpus); workers are not bound until then"
        found = f"{number} of NUMA node {node} for the workers of module {near}"
        yield Finding("cores", found, "" if number else fix, warns=True)


def modules_here(count: int) -> list[int]:
    """Return the modules that this process may use."""
    return visible_modules() or present_modules() or list(range(count))


def ray_view(count: int) -> Finding:
    """Check that Ray finds all HPUs by itself."""
    from gaudi_tune.private.ray_core import accelerators_found_by_ray

    name, seen = accelerators_found_by_ray()
    fix = "nothing for a sweep that starts Ray, which it gives their number; else: ray start --resources "
    fix = f"""{fix}'{{"{HPU.resource}": {count}}}'""" if (name, seen) != (HPU.resource, count) else ""
    return Finding("Ray", f"finds {seen} {name}s", fix, warns=True)


def owners() -> Iterator[Finding]:
    """Report which process uses which module."""
    seen = find_owners()
    for owner in seen.found:
        fix = f"end it (kill {owner.pid}), wait until it ends, or choose other modules ({MODULES})"
        yield Finding(f"module {owner.module}", f"used by pid {owner.pid} ({owner.user}) {owner.command}", fix)
    if not seen.modules:
        yield Finding("owners", "unknown: /dev/accel has no device files of modules")
    elif not seen.found:
        hidden = f"; this user may not see {seen.hidden} processes" if seen.hidden else ""
        yield Finding("owners", f"no visible process uses any of the {len(seen.modules)} modules{hidden}")


def device_memory() -> Finding:
    """Report how much of each module's memory is in use."""
    answers = sorted(hl_smi("module_id", "memory.used", "memory.total"))
    used = ", ".join(f"module {module}: {taken} of {total} MiB" for module, taken, total in answers)
    return Finding("device memory", used or "unknown: hl-smi gave no answer")


def _writable(folder: Path) -> bool:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _numbers(version: str) -> tuple[int, ...]:
    """Return 2, 9, 0 of 2.9.0+hpu.git."""
    return tuple(int(number) for number in re.split(r"[^\d.]", version)[0].split(".") if number)


def _meminfo() -> dict[str, int]:
    lines = (line.split() for line in MEMINFO.read_text().splitlines())
    return {name.rstrip(":"): int(value) for name, value, *_ in lines}
