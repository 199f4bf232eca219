"""What a Gaudi user runs first: is everything here that a sweep needs, and if not, how to fix it.

python -m experiments.doctor
"""

from __future__ import annotations

import argparse
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

from trainables.runtime.devices.find import find_devices
from trainables.runtime.devices.hpu import HPU, has_habana, hl_smi
from trainables.runtime.devices.module_owners import find_owners
from trainables.runtime.versions import installed_versions, version_of

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
ASK_THE_HOST = "if this table names no owner, sudo hl-smi on the host does"
START_THE_CONTAINER = "start the container with --runtime=habana -e HABANA_VISIBLE_DEVICES=all"

MATMUL = """
import torch
from trainables.runtime.devices.find import worker_device
from trainables.runtime.devices.hpu import HPU
device = worker_device()
ones = torch.ones(256, 256)
product = (ones.to(device) @ ones.to(device)).to("cpu")
HPU.synchronize()
assert float(product[0, 0]) == 256.0, float(product[0, 0])
"""
ALL_REDUCE = """
import os
import torch
import torch.distributed as dist
from trainables.runtime.devices.find import worker_device
from trainables.runtime.devices.hpu import register_hccl
register_hccl()
dist.init_process_group("hccl")
rank = torch.tensor([float(dist.get_rank())]).to(worker_device())
dist.all_reduce(rank)
assert float(rank) == sum(range(dist.get_world_size())), float(rank)
"""


WHAT_IT_DOES = """
Checks that this machine has everything a sweep on Gaudi needs, and says how to fix what is wrong.

Looks at versions, at the modules and the processes that use them, at memory, and at the HPUs that Ray finds. Then it
multiplies on every HPU and sums over all of them, with one process per HPU, as a sweep does. This takes about a
minute. Run it while no sweep is running. Exits with 1 if anything is wrong.
"""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    found: str
    fix: str = ""
    """What to do about it; empty if nothing is wrong."""


def main() -> None:
    """Run all checks, print a table, and exit with 1 if something needs fixing."""
    argparse.ArgumentParser(
        prog="python -m experiments.doctor",
        description=WHAT_IT_DOES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    console = Console(highlight=False)
    with console.status("checking ..."):
        findings = list(examine())
    table = Table("", Column("what", no_wrap=True), "found", "fix", box=None, pad_edge=False)
    for finding in findings:
        # As Text: rich would read brackets in a command line as markup.
        table.add_row("!!" if finding.fix else "ok", finding.what, Text(finding.found), Text(finding.fix))
    console.print(table)
    sys.exit(1 if any(finding.fix for finding in findings) else 0)


def examine() -> Iterator[Finding]:
    """Yield the findings, those of the host first."""
    yield versions()
    yield devices()
    yield shared_memory()
    if not has_habana():
        return
    yield release(version_of("habana-torch-plugin"), version_of("torch"))
    chosen = find_devices("auto", None)
    if chosen.type.kind != "hpu":
        yield Finding("HPUs", "habana is installed but finds none", START_THE_CONTAINER)
        return
    count = chosen.count
    yield from (alignment(count), hugepages(count), memory(count), logs(), ray_view(count))
    yield from owners()
    yield device_memory()
    modules = visible_modules(count)
    failed = [finding for finding in matmuls(modules) if finding.fix]
    yield from failed or [Finding("matmul", f"correct on each of {len(modules)} HPUs")]
    if not failed and len(modules) > 1:
        yield all_reduce(modules)


def versions() -> Finding:
    """Report which packages are installed."""
    text = ", ".join(f"{name} {version}" for name, version in installed_versions().items())
    return Finding("versions", f"Python {sys.version.split()[0]}, {text}")


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


def devices() -> Finding:
    """Report what a sweep would train on."""
    chosen = find_devices("auto", None)
    return Finding("devices", f"{chosen.count} {chosen.type.kind}: {chosen.reason}")


def shared_memory() -> Finding:
    """Check that /dev/shm is large enough."""
    size = shutil.disk_usage("/dev/shm").total / 2**30
    small = size < SHARED_MEMORY_GB
    return Finding("/dev/shm", f"{size:.1f} GiB", "docker run --ipc=host, or --shm-size=16g" if small else "")


def visible_modules(count: int) -> list[int]:
    """Return the module numbers that this process may use."""
    named = os.environ.get("HABANA_VISIBLE_MODULES", "all")
    return list(range(count)) if named in ("", "all") else [int(module) for module in named.split(",")]


def alignment(count: int) -> Finding:
    """Check that the modules are a set that Intel supports."""
    modules = visible_modules(count)
    reason = HPU.why_not_together(modules) if len(modules) in HPU.widths else f"{len(modules)} modules"
    fix = "use an aligned set of 1, 2, 4 or 8 modules: HABANA_VISIBLE_MODULES=0,1 or 0,1,2,3" if reason else ""
    return Finding("modules", ", ".join(map(str, modules)) + (f": {reason}" if reason else ""), fix)


def hugepages(count: int) -> Finding:
    """Check that the host has enough huge pages for the driver's buffers."""
    info = _meminfo()
    have, need = info["HugePages_Total"] * info["Hugepagesize"] // 1024, count * HUGEPAGES_MB_PER_HPU
    pages = need * 1024 // info["Hugepagesize"]
    return Finding("hugepages", f"{have} MiB", f"sysctl -w vm.nr_hugepages={pages}" if have < need else "")


def memory(count: int) -> Finding:
    """Check that the host has enough memory for one worker per HPU."""
    have, need = _meminfo()["MemTotal"] / 2**20, count * MEMORY_GB_PER_HPU
    fix = f"give the container {need} GiB, or use fewer HPUs (HABANA_VISIBLE_MODULES)" if have < need else ""
    return Finding("host memory", f"{have:.0f} GiB", fix)


def logs() -> Finding:
    """Check that habana can write its logs; if it cannot, it fails at the first use."""
    folder = Path(os.environ.get("HABANA_LOGS", Path.home() / ".habana_logs"))
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return Finding(
        "habana's logs", str(folder), "" if os.access(existing, os.W_OK) else "set HABANA_LOGS to a writable folder"
    )


def ray_view(count: int) -> Finding:
    """Check that Ray finds all HPUs by itself."""
    from trainables.runtime.internals.ray_core import hpus_found_by_ray

    seen = hpus_found_by_ray()
    fix = f"""ray start --resources '{{"HPU": {count}}}'""" if seen != count else ""
    return Finding("Ray", f"finds {seen} HPUs", fix)


def owners() -> Iterator[Finding]:
    """Report which process uses which module."""
    seen = find_owners()
    for owner in seen.found:
        fix = f"end it (kill {owner.pid}), wait until it ends, or choose other modules (HABANA_VISIBLE_MODULES)"
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


def matmuls(modules: list[int]) -> list[Finding]:
    """Multiply on each HPU, on all at the same time."""
    started = {module: _start(MATMUL, [module], rank=0) for module in modules}
    return [_probed(f"matmul on module {module}", [process], "correct") for module, process in started.items()]


def all_reduce(modules: list[int]) -> Finding:
    """Sum over all HPUs, as gradients are."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [_start(ALL_REDUCE, modules, rank, port) for rank in range(len(modules))]
    return _probed("all_reduce", processes, f"correct over {len(modules)} HPUs")


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
            return Finding(what, printed.strip().splitlines()[-1], _fix_of(printed))
    return Finding(what, good)


def _fix_of(printed: str) -> str:
    fixes: dict[str, Callable[[str], bool]] = {
        f"another process uses it, or just did: {ASK_THE_HOST}; end that process, or wait": HPU.is_being_released,
        START_THE_CONTAINER: lambda text: "synStatus=8" in text,
        "docker run --cap-add=sys_nice --ipc=host; see also habana's logs": lambda text: "synStatus" in text,
    }
    return next((fix for fix, fits in fixes.items() if fits(printed)), "see habana's logs")


def _numbers(version: str) -> tuple[int, ...]:
    """Return 2, 9, 0 of 2.9.0+hpu.git."""
    return tuple(int(number) for number in re.split(r"[^\d.]", version)[0].split(".") if number)


def _meminfo() -> dict[str, int]:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {name.rstrip(":"): int(value) for name, value, *_ in lines}
