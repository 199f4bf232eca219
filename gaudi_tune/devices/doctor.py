"""``gaudi-tune doctor``, the first command for a Gaudi user: it finds what a sweep lacks here, and says what helps.

It says what Intel's ``hl-smi`` does not: whether variables, versions, memory, cores and the choice of modules fit, and
which HPUs Ray finds. Then it computes on every HPU (:mod:`.probes`). Who uses a module, and how much of its memory,
``sudo hl-smi`` shows on the host.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from gaudi_tune.base.errors import first_line
from gaudi_tune.devices import gaudi_node as node
from gaudi_tune.devices.cores import cores_of, numa_node_of
from gaudi_tune.devices.doctor_probes import START_THE_CONTAINER, Finding, all_reduce, matmuls
from gaudi_tune.devices.find import find_devices
from gaudi_tune.devices.hpu import HPU
from gaudi_tune.private.ray_core import accelerators_found_by_ray
from gaudi_tune.private.surfaces import installed_versions, version_of

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
IN_THE_WAY = {
    "HLS_MODULE_ID": ("every process takes that module", ("",)),
    "WORLD_SIZE": ("habana takes every process for one of a group, and may fail to be imported", ("", "0", "1")),
    "RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES": ("Ray does not tell workers which module is theirs", ("", "0")),
}
"""Variables that no shell should set: what each one does, and its harmless values."""


def diagnose() -> int:
    """Run all checks, print a table, and return the exit status: 1 if something needs fixing."""
    console = Console(highlight=False)
    with console.status("checking ..."):
        findings = list(examine())
    table = Table("", Column("what", no_wrap=True), "found", "fix", box=None, pad_edge=False)
    for finding in findings:
        mark = "ok" if not finding.fix else "!" if finding.warns else "!!"
        # As Text: rich would read brackets in a command line as markup.
        table.add_row(mark, finding.subject, Text(finding.result), Text(finding.fix))
    console.print(table)
    return 1 if any(finding.fix and not finding.warns for finding in findings) else 0


def examine() -> Iterator[Finding]:
    """Yield the findings, beginning with the host."""
    yield from _checked("versions", _versions)
    yield from _checked("/dev/shm", _shared_memory)
    if not node.has_habana():
        yield from _checked("devices", _devices)
        fix = "on a Gaudi node: run it in Intel's container"
        yield Finding("Gaudi", "habana is not installed: nothing of a Gaudi was checked", fix, warns=True)
        return
    yield from _checked("variables", _variables)
    yield from _checked("release", partial(release, version_of("habana-torch-plugin"), version_of("torch")))
    yield from _checked("numpy", _numpy)
    yield from _checked("driver", _driver)
    yield from _checked("folders", _folders)
    try:
        count = HPU.count_here()
    except (ValueError, ImportError, OSError, RuntimeError) as error:
        listed = f"unset {node.MODULES}, or give the numbers of modules"
        fix = listed if isinstance(error, ValueError) else "run it in Intel's container, of the driver's release"
        yield Finding("HPUs", f"cannot be counted: {first_line(error)}", fix)
        return
    if not count:
        yield Finding("HPUs", "habana is installed but finds none", START_THE_CONTAINER)
        return
    yield from _checked("devices", _devices)
    modules = node.visible_modules() or node.present_modules() or list(range(count))
    yield from _checked("modules", partial(modules_fit, modules))
    yield from _checked("cores", partial(cores, modules))
    yield from _checked("memory", partial(_memory, count))
    yield from _checked("Ray", partial(_ray_view, count))
    yield from _checked("matmul", partial(_computed, modules))


def _checked(subject: str, check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """Return the findings of a check. If it fails itself, that is a finding, and the next checks can run."""
    try:
        return list(check())
    except Exception as error:  # it reads what a kernel, a driver and libraries say, in other words than here
        return [Finding(subject, f"cannot be checked: {first_line(error)}", "look at it by hand", warns=True)]


def _versions() -> Iterator[Finding]:
    text = ", ".join(f"{name} {version}" for name, version in installed_versions().items())
    yield Finding("versions", f"Python {sys.version.split()[0]}, {text}")


def _devices() -> Iterator[Finding]:
    device_set = find_devices("auto", None)
    yield Finding("devices", f"{device_set.count} {device_set.type.kind}: {device_set.reason}")


def _shared_memory() -> Iterator[Finding]:
    size = shutil.disk_usage("/dev/shm").total / 2**30
    small = size < SHARED_MEMORY_GB
    yield Finding("/dev/shm", f"{size:.1f} GiB", "docker run --ipc=host, or --shm-size=16g" if small else "")


def _variables() -> Iterator[Finding]:
    """Check the variables that the shell or the image has exported."""
    for name, (effect, harmless) in IN_THE_WAY.items():
        if os.environ.get(name, "") not in harmless:
            yield Finding(name, f"is {os.environ[name]}: {effect}", f"unset {name}")
    if "tcmalloc" in (preloaded := os.environ.get("LD_PRELOAD", "")):
        fix = "nothing: a sweep's workers start without it. Empty LD_PRELOAD if your own scripts crash"
        yield Finding("LD_PRELOAD", f"{preloaded}: Intel's ImageNet script crashes with it", fix, warns=True)
    if entry_points(group="torch.backends") and os.environ.get(node.AUTOLOAD) != "0":
        fix = f"nothing for a sweep that starts Ray; before ray start: export {node.AUTOLOAD}=0"
        yield Finding(node.AUTOLOAD, "every process that imports torch imports habana, for seconds", fix, warns=True)
    if HPU.is_lazy():
        has_lazy_mode = version_of("torch").partition("+")[2].startswith(("git", "hpu"))
        effect = "sweeps run in lazy mode" if has_lazy_mode else "only Intel's own torch has lazy mode"
        fix = f"unset {node.LAZY_MODE}: models are compiled then"
        yield Finding(node.LAZY_MODE, f"is {os.environ[node.LAZY_MODE]}: {effect}", fix, warns=has_lazy_mode)


def release(plugin: str, torch: str) -> Iterator[Finding]:
    """Check that Intel released this habana-torch-plugin with this torch; "" means not installed."""
    if not plugin:
        yield Finding("release", "habana_frameworks without habana-torch-plugin", "work in Intel's Gaudi container")
        return
    versions, fix = TORCH_OF_RELEASE.get(".".join(node.release_of(plugin))), ""
    if versions is None:
        fix = f"known are {', '.join(TORCH_OF_RELEASE)}: older ones do not work, newer ones may"
    elif not any(_numbers(torch)[: len(_numbers(version))] == _numbers(version) for version in versions):
        fix = f"it belongs with torch {' or '.join(versions)}: reinstall (make, or deploy/install_on_gaudi.sh)"
    yield Finding("release", f"habana-torch-plugin {plugin} with torch {torch}", fix, warns=versions is None)


def _numpy() -> Iterator[Finding]:
    """Check that torch accepts numpy's arrays: a torch that was built with numpy 1 accepts none of numpy 2."""
    import numpy
    import torch

    result, fix = f"numpy {numpy.__version__} with torch {torch.__version__}", ""
    try:
        torch.from_numpy(numpy.zeros(1))
    except RuntimeError as error:
        result += f": {error}"
        fix = "torch was built with numpy 1: .venv/bin/python -m pip install 'numpy<2' scipy pandas scikit-learn"
    yield Finding("numpy", result, fix)


def _driver() -> Iterator[Finding]:
    """Check that the host's driver and the container are of the same release."""
    plugin, answers = version_of("habana-torch-plugin"), node.hl_smi("driver_version")
    if not answers:
        fix = "run it on the host: sudo hl-smi; in a container it comes with Intel's image"
        yield Finding("driver", "unknown: hl-smi gave no answer", fix, warns=True)
        return
    (version,) = answers[0]
    fix = ""
    if plugin and node.release_of(version) != node.release_of(plugin):
        fix = "take the container of the driver's release, or have the driver of the container's installed"
    yield Finding("driver", f"{version}, and habana-torch-plugin {plugin or 'none'}", fix)


def _folders() -> Iterator[Finding]:
    """Check where habana writes its logs, without which it fails at the first use, and sweeps keep compiled graphs."""
    logs = Path(os.environ.get("HABANA_LOGS", Path.home() / ".habana_logs"))
    yield Finding("habana's logs", str(logs), "" if _writable(logs) else "set HABANA_LOGS to a writable folder")
    graphs, configured = node.recipe_folder(), os.environ.get(node.RECIPE_CACHE)
    if not _writable(graphs):
        yield Finding("compiled graphs", f"{graphs} cannot be written", "set GAUDI_TUNE_CACHE to a folder of yours")
    elif configured:
        fix = f"unset {node.RECIPE_CACHE}; GAUDI_TUNE_CACHE says where sweeps keep theirs"
        yield Finding("compiled graphs", f"{node.RECIPE_CACHE}={configured}, and sweeps use {graphs}", fix, warns=True)
    else:
        yield Finding("compiled graphs", str(graphs))


def modules_fit(modules: list[int]) -> Iterator[Finding]:
    """Check that the modules this process may use are present, and form a set that Intel supports."""
    visible, present = node.visible_modules(), node.present_modules()
    listed = ",".join(map(str, present))
    if visible is None and present and present != list(range(len(present))):
        fix = f"nothing for a sweep that starts Ray; before ray start: export {node.MODULES}={listed}"
        yield Finding("modules", f"{listed}: the container was given devices by index", fix, warns=True)
    elif visible and present and not set(visible) <= set(present):
        result = f"{node.MODULES}={os.environ[node.MODULES]}, and here are {listed}"
        yield Finding("modules", result, f"export {node.MODULES}={listed}")
    else:
        problem = HPU.placement_problem(modules) if len(modules) in HPU.widths else f"{len(modules)} modules"
        fix = f"use an aligned set of 1, 2, 4 or 8 modules: {node.MODULES}=0,1 or 0,1,2,3" if problem else ""
        yield Finding("modules", ", ".join(map(str, modules)) + (f": {problem}" if problem else ""), fix)


def cores(modules: list[int]) -> Iterator[Finding]:
    """Check that workers may run on the cores near their modules."""
    nodes = {numa for numa in map(numa_node_of, modules) if numa is not None}
    far = ", ".join(str(numa) for numa in sorted(nodes) if not cores_of(numa))
    fix = f"let the container use cores of NUMA node {far} (--cpuset-cpus): its workers are not bound until then"
    numbers = ", ".join(f"{len(cores_of(numa))} of NUMA node {numa}" for numa in sorted(nodes))
    yield Finding("cores", numbers or "the driver names no NUMA nodes", fix if far else "", warns=True)


def _memory(count: int) -> Iterator[Finding]:
    """Check that the host has enough huge pages for the driver's buffers, and memory for one worker per HPU."""
    lines = (line.split() for line in MEMINFO.read_text().splitlines())
    info = {name.rstrip(":"): int(value) for name, value, *_ in lines}
    pages_mb, needed_mb = info["HugePages_Total"] * info["Hugepagesize"] // 1024, count * HUGEPAGES_MB_PER_HPU
    fix = f"sysctl -w vm.nr_hugepages={needed_mb * 1024 // info['Hugepagesize']} (Intel's figure)"
    yield Finding("hugepages", f"{pages_mb} MiB", fix if pages_mb < needed_mb else "", warns=True)
    memory_gb, needed_gb = info["MemTotal"] / 2**20, count * MEMORY_GB_PER_HPU
    fix = f"give the container {needed_gb} GiB (Intel's figure), or use fewer HPUs ({node.MODULES})"
    yield Finding("host memory", f"{memory_gb:.0f} GiB", fix if memory_gb < needed_gb else "", warns=True)


def _ray_view(count: int) -> Iterator[Finding]:
    """Check that Ray finds all HPUs by itself."""
    name, count_by_ray = accelerators_found_by_ray()
    fix = ""
    if (name, count_by_ray) != (HPU.resource, count):
        resources = json.dumps({HPU.resource: count})
        fix = f"nothing for a sweep that starts Ray; else: ray start --resources '{resources}'"
    yield Finding("Ray", f"finds {count_by_ray} {name}s", fix, warns=True)


def _computed(modules: list[int]) -> Iterator[Finding]:
    """Multiply on each HPU, and if that works sum over all of them."""
    failed = [finding for finding in matmuls(modules) if finding.fix]
    yield from failed or [Finding("matmul", f"correct on each of {len(modules)} HPUs")]
    if not failed and len(modules) > 1:
        yield all_reduce(modules)


def _writable(folder: Path) -> bool:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for example (2, 9, 0) for 2.9.0+hpu.git."""
    return tuple(int(number) for number in re.split(r"[^\d.]", version)[0].split(".") if number)
