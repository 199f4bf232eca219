"""What a Gaudi user runs first: is everything here that a sweep needs, and if not, what mends it?

    python -m experiments.doctor

Looks at versions, modules and who has them, memory and Ray's view, then multiplies on every HPU and sums over all of
them, each in a process of its own, as a sweep would. Ends with status 1 if anything is wrong. Takes a minute; needs no
running sweep.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from experiments.module_owners import find_owners
from trainables.runtime.device import (
    MODULES_OF_A_NODE,
    find_devices,
    has_habana,
    hl_smi,
    is_being_released,
    why_not_aligned,
)

PACKAGES = ("torch", "torchvision", "habana-torch-plugin", "ray", "optuna", "mlflow", "transformers")
TORCH_OF_RELEASE = {
    "1.20": ("2.6",),
    "1.21": ("2.6",),
    "1.22": ("2.7.1",),
    "1.23": ("2.9",),
    "1.24": ("2.10", "2.11", "2.12", "2.13"),
}
"""Intel's releases, and torch in their containers. The project needs torch 2.6, so older ones are out."""
HUGEPAGES_MB_PER_HPU = 95_000 // 8
"""Intel's figure for a pod of 8 HPUs is 95,000 MiB of 2 MiB pages."""
MEMORY_GB_PER_HPU = 409 // 8
"""Intel's figure for a pod of 8 HPUs is 409 GiB."""
SHARED_MEMORY_GB = 8
"""Ray and loader workers hand tensors over in /dev/shm; Docker's own default is 64 MB."""
PROBE_WITHIN_S = 300
ASK_THE_HOST = "if no owner is named here, sudo hl-smi on the host names it"
START_THE_CONTAINER = "start the container with --runtime=habana -e HABANA_VISIBLE_DEVICES=all"

MATMUL = """
import torch
from trainables.runtime.device import synchronize, worker_device
device = worker_device()
ones = torch.ones(256, 256)
product = (ones.to(device) @ ones.to(device)).to("cpu")
synchronize(device)
assert float(product[0, 0]) == 256.0, float(product[0, 0])
"""
ALL_REDUCE = """
import os
import torch
import torch.distributed as dist
from trainables.runtime.device import register_hccl, worker_device
register_hccl()
dist.init_process_group("hccl")
rank = torch.tensor([float(dist.get_rank())]).to(worker_device())
dist.all_reduce(rank)
assert float(rank) == sum(range(dist.get_world_size())), float(rank)
"""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    mend: str = ""
    """What to do about it; empty if it is as it should be."""


def main() -> None:
    """Look at everything, print a table, and exit with 1 if something is to be mended."""
    console = Console(highlight=False)
    with console.status("looking ..."):
        findings = list(examine())
    table = Table("", Column("what", no_wrap=True), "found", "mend", box=None, pad_edge=False)
    for finding in findings:
        # As Text, for a command line may hold what rich takes for markup.
        table.add_row("!!" if finding.mend else "ok", finding.what, Text(finding.found), Text(finding.mend))
    console.print(table)
    sys.exit(1 if any(finding.mend for finding in findings) else 0)


def examine() -> Iterator[Finding]:
    """Yield the findings, those of the host first."""
    yield versions()
    yield devices()
    yield shared_memory()
    if not has_habana():
        return
    yield release(_version_of("habana-torch-plugin"), _version_of("torch"))
    chosen = find_devices("auto", None)
    if chosen.type.kind != "hpu":
        yield Finding("HPUs", "habana is installed, and finds none", START_THE_CONTAINER)
        return
    count = chosen.count
    yield from (alignment(count), hugepages(count), memory(count), logs(), ray_view(count))
    yield from owners()
    yield device_memory()
    modules = visible_modules(count)
    failed = [finding for finding in matmuls(modules) if finding.mend]
    yield from failed or [Finding("matmul", f"right on each of {len(modules)} HPUs")]
    if not failed and len(modules) > 1:
        yield all_reduce(modules)


def versions() -> Finding:
    """Which packages are installed."""
    found = {package: version for package in PACKAGES if (version := _version_of(package))}
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    return Finding("versions", f"Python {sys.version.split()[0]}, {text}")


def release(plugin: str, torch: str) -> Finding:
    """Whether Intel released this habana-torch-plugin with this torch; "" for one that is not installed."""
    if not plugin:
        return Finding("release", "habana_frameworks without habana-torch-plugin", "work in Intel's Gaudi container")
    found, number = f"habana-torch-plugin {plugin} with torch {torch}", _numbers(plugin)[:2]
    shipped = {_numbers(name): versions for name, versions in TORCH_OF_RELEASE.items()}
    if number > max(shipped):
        return Finding("release", f"{found}: newer than what this version of the project knows")
    if number not in shipped:
        oldest = next(iter(TORCH_OF_RELEASE))
        return Finding("release", f"{found}: too old", f"take Intel's container of release {oldest} or later")
    if any(_numbers(torch)[: len(_numbers(version))] == _numbers(version) for version in shipped[number]):
        return Finding("release", found)
    mend = f"it belongs with torch {' or '.join(shipped[number])}: install again (make, or deploy/install_on_gaudi.sh)"
    return Finding("release", f"{found}: another torch than Intel's", mend)


def devices() -> Finding:
    """What a sweep would train on."""
    chosen = find_devices("auto", None)
    return Finding("devices", f"{chosen.count} {chosen.type.kind}: {chosen.reason}")


def shared_memory() -> Finding:
    """Whether /dev/shm is large enough."""
    size = shutil.disk_usage("/dev/shm").total / 2**30
    small = size < SHARED_MEMORY_GB
    return Finding("/dev/shm", f"{size:.1f} GiB", "docker run --ipc=host, or --shm-size=16g" if small else "")


def visible_modules(count: int) -> list[int]:
    """Return the module numbers that this process may use."""
    named = os.environ.get("HABANA_VISIBLE_MODULES", "all")
    return list(range(count)) if named in ("", "all") else [int(module) for module in named.split(",")]


def alignment(count: int) -> Finding:
    """Whether the modules are a set that Intel supports."""
    modules = visible_modules(count)
    reason = why_not_aligned(modules) if len(modules) in (1, 2, 4, MODULES_OF_A_NODE) else f"{len(modules)} modules"
    mend = "take 1, 2, 4 or 8 modules, aligned: HABANA_VISIBLE_MODULES=0,1 or 0,1,2,3" if reason else ""
    return Finding("modules", ", ".join(map(str, modules)) + (f": {reason}" if reason else ""), mend)


def hugepages(count: int) -> Finding:
    """Whether the host has pages for the driver's buffers."""
    info = _meminfo()
    have, need = info["HugePages_Total"] * info["Hugepagesize"] // 1024, count * HUGEPAGES_MB_PER_HPU
    pages = need * 1024 // info["Hugepagesize"]
    return Finding("hugepages", f"{have} MiB", f"sysctl -w vm.nr_hugepages={pages}" if have < need else "")


def memory(count: int) -> Finding:
    """Whether the host has memory for one worker per HPU."""
    have, need = _meminfo()["MemTotal"] / 2**20, count * MEMORY_GB_PER_HPU
    mend = f"give the container {need} GiB, or use fewer HPUs (HABANA_VISIBLE_MODULES)" if have < need else ""
    return Finding("host memory", f"{have:.0f} GiB", mend)


def logs() -> Finding:
    """Whether habana can write its logs, without which it fails at the first use."""
    folder = Path(os.environ.get("HABANA_LOGS", Path.home() / ".habana_logs"))
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return Finding("habana's logs", str(folder), "" if os.access(existing, os.W_OK) else "set HABANA_LOGS to a folder")


def ray_view(count: int) -> Finding:
    """How many HPUs Ray finds by itself."""
    from ray._private.accelerators.hpu import HPUAcceleratorManager

    seen = HPUAcceleratorManager.get_current_node_num_accelerators()
    mend = f"""ray start --resources '{{"HPU": {count}}}'""" if seen != count else ""
    return Finding("Ray", f"finds {seen} HPUs", mend)


def owners() -> Iterator[Finding]:
    """Who has which module."""
    seen = find_owners()
    for owner in seen.found:
        mend = f"end it (kill {owner.pid}), wait for it, or choose other modules (HABANA_VISIBLE_MODULES)"
        yield Finding(f"module {owner.module}", f"owned by pid {owner.pid} ({owner.user}) {owner.command}", mend)
    if not seen.modules:
        yield Finding("owners", "cannot be told: no device files of modules in /dev/accel")
    elif not seen.found:
        hidden = f"; {seen.hidden} processes are hidden from this user" if seen.hidden else ""
        yield Finding("owners", f"no process seen from here has one of {len(seen.modules)} modules{hidden}")


def device_memory() -> Finding:
    """How much of each module's memory is in use."""
    answers = sorted(hl_smi("module_id", "memory.used", "memory.total"))
    said = ", ".join(f"module {module}: {used} of {total} MiB" for module, used, total in answers)
    return Finding("device memory", said or "hl-smi does not say")


def matmuls(modules: list[int]) -> list[Finding]:
    """Multiply on each HPU, on all at once."""
    started = {module: _start(MATMUL, [module], rank=0) for module in modules}
    return [_probed(f"matmul on module {module}", [process], "right") for module, process in started.items()]


def all_reduce(modules: list[int]) -> Finding:
    """Sum over all HPUs, as gradients are."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [_start(ALL_REDUCE, modules, rank, port) for rank in range(len(modules))]
    return _probed("all_reduce", processes, f"right over {len(modules)} HPUs")


def _start(code: str, modules: list[int], rank: int, port: int = 0) -> subprocess.Popen[str]:
    own = str(modules[rank])
    place = {"HLS_MODULE_ID": own, "HABANA_VISIBLE_MODULES": own, "PT_HPU_LAZY_MODE": "0"}
    peers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": len(modules), "MASTER_PORT": port}
    together = {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in peers.items()}} if port else {}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **place, **together},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _probed(what: str, processes: list[subprocess.Popen[str]], good: str) -> Finding:
    for process in processes:
        try:
            printed, _ = process.communicate(timeout=PROBE_WITHIN_S)
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            return Finding(what, f"no answer in {PROBE_WITHIN_S} s", "see dmesg and hl-smi; reset the device if idle")
        if process.returncode:
            for other in processes:
                other.kill()
            return Finding(what, printed.strip().splitlines()[-1], _mend_of(printed))
    return Finding(what, good)


def _mend_of(printed: str) -> str:
    mends: dict[str, Callable[[str], bool]] = {
        f"another process has it, or had it a moment ago: {ASK_THE_HOST}; end it, or wait": is_being_released,
        START_THE_CONTAINER: lambda text: "synStatus=8" in text,
        "docker run --cap-add=sys_nice --ipc=host, and see habana's logs": lambda text: "synStatus" in text,
    }
    return next((mend for mend, fits in mends.items() if fits(printed)), "see habana's logs")


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    """Return 2, 9, 0 of 2.9.0+hpu.git."""
    return tuple(int(number) for number in re.split(r"[^\d.]", version)[0].split(".") if number)


def _meminfo() -> dict[str, int]:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {name.rstrip(":"): int(value) for name, value, *_ in lines}


if __name__ == "__main__":
    main()
