"""A healthy Gaudi node made of files and programs, and one fault at a time: the doctor finds it and says what to do."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from gaudi_tune.devices import doctor, doctor_probes, gaudi_node
from gaudi_tune.devices.cores import DEVICE_ROOT
from gaudi_tune.private.surfaces import version_of
from tests.helpers.stand_in_hpu import FORGOTTEN, lay_out_devices

pytestmark = pytest.mark.processes

HEALTHY = {"driver_version": "1.24.0-8a6e1c7\n1.24.0-8a6e1c7", "module_id": "1\n0", "name": "HL-225\nHL-225"}
"""What hl-smi answers."""
MEMINFO = "MemTotal: 1056000000 kB\nHugePages_Total: {pages}\nHugepagesize: 2048 kB\n"
TAKEN = "RuntimeError: synStatus=8 [Device not found] Device acquire failed."


class Node:
    """Two HPUs of release 1.24, with nothing wrong."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        for name in (*FORGOTTEN, *doctor.IN_THE_WAY, gaudi_node.RECIPE_CACHE):
            patch.delenv(name, raising=False)
        patch.setenv(DEVICE_ROOT, str(folder))
        patch.setenv("GAUDI_TUNE_CACHE", str(folder / "cache"))
        patch.setenv("HABANA_LOGS", str(folder / "logs"))
        patch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
        lay_out_devices(folder, 2)
        self.answers(HEALTHY)
        self.habana(2)
        self.probe("exit 0")
        self.file(
            "habana_torch_plugin-1.24.0.1007.dist-info/METADATA", "Name: habana-torch-plugin\nVersion: 1.24.0.1007"
        )
        self.meminfo(MEMINFO.format(pages=20_000))
        patch.setattr(doctor, "SHARED_MEMORY_GB", 0)
        patch.setattr(doctor, "TORCH_OF_RELEASE", {"1.24": (version("torch"),)})
        patch.setattr("ray._private.accelerators.hpu.HPU_PACKAGE_AVAILABLE", True)
        patch.syspath_prepend(str(folder))
        gaudi_node._chip.cache_clear()

    def file(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def program(self, name: str, script: str) -> Path:
        file = self.file(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return file

    def answers(self, answers: dict[str, str]) -> None:
        cases = "".join(f"'{asked}') cat <<'END'\n{printed}\nEND\n;;\n" for asked, printed in answers.items())
        self.program("hl-smi", f'case "$2" in\n{cases}esac')

    def habana(self, modules: int) -> None:
        self.file("habana_frameworks/__init__.py", "")
        self.file("habana_frameworks/torch/__init__.py", "")
        count = f"def is_available(): return {modules} > 0\ndef is_initialized(): return False\n"
        self.file("habana_frameworks/torch/hpu.py", f"{count}def device_count(): return {modules}\n")

    def probe(self, script: str) -> None:
        """Have this run in place of Python in the processes that compute."""
        self.patch.setattr(sys, "executable", str(self.program("python-of-probes", script)))

    def says(self, text: str) -> None:
        self.probe(f"cat <<'END'\nTraceback (most recent call last):\n{text}\nEND\nexit 1")

    def meminfo(self, text: str) -> None:
        self.patch.setattr(doctor, "MEMINFO", self.file("meminfo", text))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    yield Node(tmp_path, monkeypatch)
    for name in [name for name in sys.modules if name.partition(".")[0] == "habana_frameworks"]:
        del sys.modules[name]
    gaudi_node._chip.cache_clear()


def test_a_healthy_node_has_nothing_to_fix(node: Node) -> None:
    found = {finding.subject: finding for finding in doctor.examine()}
    assert not [finding for finding in found.values() if finding.fix]
    assert found["matmul"].result == "correct on each of 2 HPUs"
    assert found["all_reduce"].result == "correct over 2 HPUs"
    assert found["modules"].result == "0, 1"


def variable(name: str, value: str) -> Callable[[Node], None]:
    return lambda node: node.patch.setenv(name, value)


def prints(text: str) -> Callable[[Node], None]:
    return lambda node: node.says(text)


def answering(**changed: str) -> Callable[[Node], None]:
    return lambda node: node.answers({**HEALTHY, **changed})


def hang(node: Node) -> None:
    node.patch.setattr(doctor_probes, "WITHIN_S", 0.2)
    node.probe("exec sleep 60")


def no_device(node: Node) -> None:
    node.patch.setenv(DEVICE_ROOT, str(node.folder / "empty"))
    node.says(TAKEN)


def full_shared_memory(node: Node) -> None:
    node.patch.setattr(doctor, "SHARED_MEMORY_GB", 10**6)


def broken(node: Node) -> None:
    node.file("habana_frameworks/torch/hpu.py", "raise ImportError('libSynapse.so: cannot open shared object file')")


def apart(node: Node) -> None:
    node.habana(8)
    node.answers({**HEALTHY, "module_id": "1\n2"})
    node.patch.setenv(gaudi_node.MODULES, "1,2")


def autoload(node: Node) -> None:
    node.file(
        "habana_torch_plugin-1.24.0.1007.dist-info/entry_points.txt", "[torch.backends]\ndevice_backend = no:no\n"
    )


def lazy_with(torch: str) -> Callable[[Node], None]:
    """Return what asks for lazy mode with this torch."""

    def plant(node: Node) -> None:
        node.patch.setattr(doctor, "version_of", lambda name: torch if name == "torch" else version_of(name))
        node.patch.setattr(doctor, "TORCH_OF_RELEASE", {"1.24": ("2.11",)})
        node.patch.setenv(gaudi_node.LAZY_MODE, "1")

    return plant


def numpy_1(node: Node) -> None:
    def refuse(array: object) -> None:
        raise RuntimeError("Numpy is not available")  # in torch's words

    node.patch.setattr("torch.from_numpy", refuse)


def far(node: Node) -> None:
    node.file("sys/class/accel/accel0/device/numa_node", "1\n")
    node.file("sys/class/accel/accel1/device/numa_node", "1\n")
    node.file("sys/devices/system/node/node1/cpulist", "4000-4063\n")


FAULTS: dict[str, tuple[Callable[[Node], None], str, str]] = {
    # what is planted: how, the check that finds it, what it says to do
    "a busy device": (prints(TAKEN), "matmul on module 0", "another process has it, or it is being reset"),
    "no device in the container": (no_device, "matmul on module 0", "start the container with --runtime=habana"),
    "a device that does not work": (
        prints("synStatus=26 [Generic failure] Device acquire failed."), "matmul on module 0", "driver is of another",
    ),
    "a session that cannot write its logs": (
        prints("Session init failed: read-only file system, synStatus=26"), "matmul on module 0", "set HABANA_LOGS",
    ),
    "a probe without a word": (lambda node: node.probe("kill -SEGV $$"), "matmul on module 0", "TcMalloc out of"),
    "a probe that ends without a word": (lambda node: node.probe("exit 3"), "matmul on module 0", "habana's logs"),
    "a probe that does not end": (hang, "matmul on module 0", "reset the device"),
    "a wrong product": (prints("AssertionError: 255.5"), "matmul on module 0", "computes wrong"),
    "full device memory": (prints("MODULE:PT_DEVMEM Allocation failed"), "matmul on module 0", "another process fills"),
    "hccl alone fails": (
        lambda node: node.probe('[ -z "$RANK" ] || { echo "synStatus=1"; exit 1; }'), "all_reduce", "cap-add=sys_nice",
    ),
    "no HPU": (lambda node: node.habana(0), "HPUs", "start the container with --runtime=habana"),
    "a broken habana": (broken, "HPUs", "in Intel's container"),
    "devices given by index": (
        answering(module_id="5\n4"), "modules", r"before ray start: export HABANA_VISIBLE_MODULES=4,5",
    ),
    "modules that are not here": (
        variable(gaudi_node.MODULES, "4,5"), "modules", "export HABANA_VISIBLE_MODULES=0,1",
    ),
    "the word all": (variable(gaudi_node.MODULES, "all"), "HPUs", "unset HABANA_VISIBLE_MODULES"),
    "no modules": (variable(gaudi_node.MODULES, ""), "HPUs", "unset HABANA_VISIBLE_MODULES"),
    "modules apart": (apart, "modules", "use an aligned set"),
    "a module for all": (variable("HLS_MODULE_ID", "0"), "HLS_MODULE_ID", "unset HLS_MODULE_ID"),
    "a shell of mpirun": (variable("WORLD_SIZE", "8"), "WORLD_SIZE", "unset WORLD_SIZE"),
    "a Ray that says no modules": (
        variable("RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES", "1"),
        "RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES", "unset RAY_EXPERIMENTAL",
    ),
    "TcMalloc": (variable("LD_PRELOAD", "/lib/libtcmalloc.so.4"), "LD_PRELOAD", "workers start without it"),
    "autoload": (autoload, gaudi_node.AUTOLOAD, "before ray start: export TORCH_DEVICE_BACKEND_AUTOLOAD=0"),
    "lazy mode": (lazy_with("2.11.0+hpu_1.24.0"), gaudi_node.LAZY_MODE, "unset PT_HPU_LAZY_MODE"),
    "lazy mode that torch has not": (lazy_with("2.11.0+cpu"), gaudi_node.LAZY_MODE, "unset PT_HPU_LAZY_MODE"),
    "a torch of numpy 1": (numpy_1, "numpy", "pip install 'numpy<2'"),
    "driver and user space apart": (
        answering(driver_version="1.19.2-fdbe2b1"), "driver", "take the container of the driver's release",
    ),
    "no hl-smi": (lambda node: (node.folder / "bin" / "hl-smi").unlink(), "driver", "sudo hl-smi"),
    "another torch": (
        lambda node: node.patch.setattr(doctor, "TORCH_OF_RELEASE", {"1.24": ("2.10",)}), "release", "reinstall",
    ),
    "no huge pages": (lambda node: node.meminfo(MEMINFO.format(pages=0)), "hugepages", "vm.nr_hugepages=11875"),
    "little memory": (
        lambda node: node.meminfo(MEMINFO.format(pages=20_000).replace("1056", "16")), "host memory", "container 102",
    ),
    "a kernel without huge pages": (lambda node: node.meminfo("MemTotal: 1056000000 kB\n"), "memory", "by hand"),
    "a small /dev/shm": (full_shared_memory, "/dev/shm", "--ipc=host"),
    "logs in a file": (
        lambda node: node.patch.setenv("HABANA_LOGS", str(node.file("file", "") / "logs")),
        "habana's logs", "set HABANA_LOGS",
    ),
    "a cache of one's own": (
        variable(gaudi_node.RECIPE_CACHE, "/tmp/recipes,true,100"),
        "compiled graphs",
        "unset PT_HPU_RECIPE_CACHE_CONFIG",
    ),
    "a cache that cannot be written": (
        lambda node: node.patch.setenv("GAUDI_TUNE_CACHE", str(node.file("file", "") / "cache")),
        "compiled graphs", "set GAUDI_TUNE_CACHE",
    ),
    "a Ray that sees no HPU": (
        lambda node: node.patch.setattr("ray._private.accelerators.hpu.HPU_PACKAGE_AVAILABLE", False),
        "Ray", "ray start --resources",
    ),
    "cores far from their module": (far, "cores", "cores of NUMA node 1 .*--cpuset-cpus"),
}  # fmt: skip
MAY_RUN = {
    "devices given by index", "TcMalloc", "autoload", "lazy mode", "no hl-smi", "no huge pages", "little memory",
    "a kernel without huge pages", "a cache of one's own", "a Ray that sees no HPU", "cores far from their module",
}  # fmt: skip
"""Faults with which a sweep may run all the same: warnings."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_with_what_to_do(fault: str, node: Node) -> None:
    plant, what, fix = FAULTS[fault]
    plant(node)
    named = {finding.subject: finding for finding in doctor.examine() if finding.fix}
    assert what in named, f"found only {named}"
    assert re.search(fix, named[what].fix), named[what]
    assert named[what].result
    assert named[what].warns is (fault in MAY_RUN)
    others = {other for other in named if other != what and not other.startswith("matmul on")}
    assert not others, "healthy things are named, too"
