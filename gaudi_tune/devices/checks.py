"""The doctor's checks that compute nothing: variables, packages, the host, Ray, and the owners of modules."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from gaudi_tune.base.process import installed_versions, version_of
from gaudi_tune.devices.cores import BIND, cores_of, numa_node_of
from gaudi_tune.devices.find import find_devices
from gaudi_tune.devices.gaudi_node import (
    AUTOLOAD,
    LAZY_MODE,
    MODULES,
    RECIPE_CACHE,
    present_modules,
    recipe_folder,
    release_of,
    visible_modules,
)
from gaudi_tune.devices.hl_smi import hl_smi
from gaudi_tune.devices.hpu import HPU
from gaudi_tune.devices.module_owners import find_owners

TORCH_OF_RELEASE = {"1.22": ("2.7.1",), "1.23": ("2.9",), "1.24": ("2.10", "2.11", "2.12", "2.13")}
"""Intel's releases, and torch in their containers. Older releases have torch 2.6 or less, with which models do not
compile: Dynamo has no ``recompile_limit`` there, and transformers needs features of torch 2.7."""
HUGEPAGES_MB_PER_HPU = 95_000 // 8
"""Intel's figure for a pod of 8 HPUs is 95,000 MiB of 2 MiB pages. Some of Intel's manifests request less."""
MEMORY_GB_PER_HPU = 409 // 8
"""Intel's figure for a pod of 8 HPUs is 409 GiB."""
SHARED_MEMORY_GB = 8
"""Ray and loader workers pass tensors through /dev/shm. Docker's default size is 64 MB."""
MEMINFO = Path("/proc/meminfo")
NETWORKS = Path("/sys/class/net")
SCALE_OUT = (
    "HCCL_SOCKET_IFNAME", "HCCL_OVER_OFI", "RDMAV_FORK_SAFE", "FI_EFA_USE_DEVICE_RDMA", "MLX5_SCATTER_TO_CQE",
)  # fmt: skip
"""Variables that control how hccl sums gradients between nodes."""
IN_THE_WAY = {
    "HLS_MODULE_ID": ("every process takes that module", ("",)),
    "WORLD_SIZE": ("habana takes every process for one of a group, and may fail to be imported", ("", "0", "1")),
    "RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES": ("Ray does not tell workers which module is theirs", ("", "0")),
}
"""Variables that no shell should set: what each one does, and its harmless values."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    subject: str
    result: str
    fix: str = ""
    """What to do about it; empty if nothing is wrong."""
    warns: bool = False
    """Whether a sweep may run nevertheless."""


def versions() -> Finding:
    """Report which packages are installed."""
    text = ", ".join(f"{name} {version}" for name, version in installed_versions().items())
    return Finding("versions", f"Python {sys.version.split()[0]}, {text}")


def devices() -> Finding:
    """Report what a sweep would train on."""
    device_set = find_devices("auto", None)
    return Finding("devices", f"{device_set.count} {device_set.type.kind}: {device_set.reason}")


def shared_memory() -> Finding:
    """Check that /dev/shm is large enough."""
    size = shutil.disk_usage("/dev/shm").total / 2**30
    small = size < SHARED_MEMORY_GB
    return Finding("/dev/shm", f"{size:.1f} GiB", "docker run --ipc=host, or --shm-size=16g" if small else "")


def variables() -> Iterator[Finding]:
    """Check the variables that the shell or the image has exported."""
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
    pairing, number = f"habana-torch-plugin {plugin} with torch {torch}", _numbers(plugin)[:2]
    shipped = {_numbers(name): versions for name, versions in TORCH_OF_RELEASE.items()}
    if number > max(shipped):
        return Finding("release", f"{pairing}: newer than this version of the project knows")
    if number not in shipped:
        oldest = next(iter(TORCH_OF_RELEASE))
        return Finding("release", f"{pairing}: too old", f"take Intel's container of release {oldest} or later")
    if any(_numbers(torch)[: len(_numbers(version))] == _numbers(version) for version in shipped[number]):
        return Finding("release", pairing)
    fix = f"it belongs with torch {' or '.join(shipped[number])}: reinstall (make, or deploy/install_on_gaudi.sh)"
    return Finding("release", f"{pairing}: not the torch that Intel ships", fix)


def numpy() -> Finding:
    """Check that torch accepts numpy's arrays: a torch that was built with numpy 1 accepts none of numpy 2."""
    import numpy
    import torch

    pairing = f"numpy {numpy.__version__} with torch {torch.__version__}"
    try:
        torch.from_numpy(numpy.zeros(1))
    except RuntimeError as error:
        fix = "torch was built with numpy 1: .venv/bin/python -m pip install 'numpy<2' scipy pandas scikit-learn"
        return Finding("numpy", f"{pairing}: {error}", fix)
    return Finding("numpy", pairing)


def driver() -> Finding:
    """Check that the host's driver and the container are of the same release."""
    plugin, answers = version_of("habana-torch-plugin"), hl_smi("driver_version")
    if not answers:
        fix = "run it on the host: sudo hl-smi; in a container it comes with Intel's image"
        return Finding("driver", "unknown: hl-smi gave no answer", fix, warns=True)
    (version,) = answers[0]
    differs = bool(plugin) and release_of(version) != release_of(plugin)
    if not differs:
        return Finding("driver", version)
    fix = "take the container of the driver's release, or have the driver of the container's installed"
    return Finding("driver", f"{version}, and habana-torch-plugin {plugin}", fix)


def hugepages(count: int) -> Finding:
    """Check that the host has enough huge pages for the driver's buffers."""
    info = _meminfo()
    available_mb, needed_mb = info["HugePages_Total"] * info["Hugepagesize"] // 1024, count * HUGEPAGES_MB_PER_HPU
    fix = ""
    if available_mb < needed_mb:
        fix = f"sysctl -w vm.nr_hugepages={needed_mb * 1024 // info['Hugepagesize']} (Intel's figure)"
    return Finding("hugepages", f"{available_mb} MiB", fix, warns=True)


def memory(count: int) -> Finding:
    """Check that the host has enough memory for one worker per HPU."""
    available_gb, needed_gb = _meminfo()["MemTotal"] / 2**20, count * MEMORY_GB_PER_HPU
    fix = ""
    if available_gb < needed_gb:
        fix = f"give the container {needed_gb} GiB (Intel's figure), or use fewer HPUs ({MODULES})"
    return Finding("host memory", f"{available_gb:.0f} GiB", fix, warns=True)


def logs() -> Finding:
    """Check that habana can write its logs; if it cannot, it fails at the first use."""
    folder = Path(os.environ.get("HABANA_LOGS", Path.home() / ".habana_logs"))
    return Finding("habana's logs", str(folder), "" if _writable(folder) else "set HABANA_LOGS to a writable folder")


def compiled_graphs() -> Finding:
    """Check where compiled graphs are kept, and whether graphs of other releases take up space."""
    folder = recipe_folder()
    if not _writable(folder):
        return Finding("compiled graphs", f"{folder} cannot be written", "set GAUDI_TUNE_CACHE to a folder of yours")
    if configured := os.environ.get(RECIPE_CACHE):
        return Finding("compiled graphs", f"{RECIPE_CACHE}={configured}, and sweeps use {folder}",
                       f"unset {RECIPE_CACHE}; GAUDI_TUNE_CACHE says where sweeps keep theirs", warns=True)  # fmt: skip
    # Folders that begin with the same name belong to it, such as that of the groups that compile for others.
    stale = [path for path in folder.parent.glob("*") if path.is_dir() and not path.name.startswith(folder.name)]
    if not stale:
        return Finding("compiled graphs", str(folder), warns=True)
    size = sum(file.stat().st_size for path in stale for file in path.rglob("*") if file.is_file()) / 2**20
    names = ", ".join(path.name for path in stale)
    fix = f"rm -r {' '.join(map(str, stale))}, if nobody uses them"
    return Finding("compiled graphs", f"{folder}; of other releases or chips {names}: {size:.0f} MiB", fix, warns=True)


def scale_out() -> Finding:
    """Report hccl's settings for the network between nodes. A single node needs none."""
    settings = ", ".join(
        f"{name}={os.environ[name]}" if name in os.environ else f"{name} not set" for name in SCALE_OUT
    )
    interfaces = sorted(interface.name for interface in NETWORKS.glob("*"))
    named = [name for name in os.environ.get("HCCL_SOCKET_IFNAME", "").split(",") if name]
    unknown = [name for name in named if not any(interface.startswith(name) for interface in interfaces)]
    if unknown:
        fix = f"HCCL_SOCKET_IFNAME: there is no {', '.join(unknown)}; here are {', '.join(interfaces)}"
        return Finding("scale-out", settings, fix)
    fix = ""
    if "HCCL_OVER_OFI" in os.environ:
        fix = "unset HCCL_OVER_OFI: whatever its value, sums go through host memory, even if Gaudis have a network"
    return Finding("scale-out", settings, fix, warns=True)


def modules(count: int) -> Finding:
    """Check that the modules this process may use are present, and form a set that Intel supports."""
    named, present = visible_modules(), present_modules()
    usable = modules_here(count)
    listed = ",".join(map(str, present))
    if named is None and present and present != list(range(len(present))):
        fix = f"nothing for a sweep that starts Ray; before ray start: export {MODULES}={listed}"
        return Finding("modules", f"{listed}: the container was given devices by index", fix, warns=True)
    if named and present and not set(named) <= set(present):
        return Finding(
            "modules", f"{MODULES}={os.environ[MODULES]}, and here are {listed}", f"export {MODULES}={listed}"
        )
    reason = HPU.placement_problem(usable) if len(usable) in HPU.widths else f"{len(usable)} modules"
    fix = f"use an aligned set of 1, 2, 4 or 8 modules: {MODULES}=0,1 or 0,1,2,3" if reason else ""
    return Finding("modules", ", ".join(map(str, usable)) + (f": {reason}" if reason else ""), fix)


def cores(count: int) -> Iterator[Finding]:
    """Report the cores on which the worker of each module will run."""
    if os.environ.get(BIND) == "0":
        yield Finding("cores", f"workers are not bound to any: {BIND}=0")
        return
    nodes = {module: numa_node_of(module) for module in modules_here(count)}
    if None in nodes.values():
        unknown = ", ".join(str(module) for module, node in nodes.items() if node is None)
        yield Finding("cores", f"workers are not bound to any: the driver names no NUMA node of module {unknown}")
    for node in sorted({node for node in nodes.values() if node is not None}):
        module_list = ", ".join(str(module) for module, module_node in nodes.items() if module_node == node)
        number = len(cores_of(node))
        fix = f"let the container use cores of NUMA node {node} (--cpuset-cpus); workers are not bound until then"
        placement = f"{number} of NUMA node {node} for the workers of module {module_list}"
        yield Finding("cores", placement, "" if number else fix, warns=True)


def modules_here(count: int) -> list[int]:
    """Return the modules that this process may use."""
    return visible_modules() or present_modules() or list(range(count))


def ray_view(count: int) -> Finding:
    """Check that Ray finds all HPUs by itself."""
    from gaudi_tune.private.ray_core import accelerators_found_by_ray

    name, count_by_ray = accelerators_found_by_ray()
    fix = ""
    if (name, count_by_ray) != (HPU.resource, count):
        resources = json.dumps({HPU.resource: count})
        fix = (
            "nothing for a sweep that starts Ray, which it gives their number; else: ray start --resources "
            f"'{resources}'"
        )
    return Finding("Ray", f"finds {count_by_ray} {name}s", fix, warns=True)


def owners() -> Iterator[Finding]:
    """Report which process uses which module."""
    usage = find_owners()
    for owner in usage.owners:
        fix = f"end it (kill {owner.pid}), wait until it ends, or choose other modules ({MODULES})"
        yield Finding(f"module {owner.module}", f"used by pid {owner.pid} ({owner.user}) {owner.command}", fix)
    if not usage.modules:
        yield Finding("owners", "unknown: /dev/accel has no device files of modules")
    elif not usage.owners:
        hidden = f"; this user may not see {usage.hidden} processes" if usage.hidden else ""
        yield Finding("owners", f"no visible process uses any of the {len(usage.modules)} modules{hidden}")


def device_memory() -> Finding:
    """Report how much of each module's memory is in use."""
    answers = sorted(hl_smi("module_id", "memory.used", "memory.total"))
    usage = ", ".join(f"module {module}: {used_mib} of {total_mib} MiB" for module, used_mib, total_mib in answers)
    return Finding("device memory", usage or "unknown: hl-smi gave no answer")


def _writable(folder: Path) -> bool:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for example (2, 9, 0) for 2.9.0+hpu.git."""
    return tuple(int(number) for number in re.split(r"[^\d.]", version)[0].split(".") if number)


def _meminfo() -> dict[str, int]:
    lines = (line.split() for line in MEMINFO.read_text().splitlines())
    return {name.rstrip(":"): int(value) for name, value, *_ in lines}
