"""The parts of a Gaudi node that need no habana: its variables, its modules, and the folder of compiled graphs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gaudi_tune.base.node_cache import cache_root
from gaudi_tune.devices.cores import bind_to_cores_near
from gaudi_tune.private.surfaces import version_of

MODULES = "HABANA_VISIBLE_MODULES"
"""habana's variable for the modules that a process may use, such as 4,5. Ray sets each worker's own module."""
LAZY_MODE = "PT_HPU_LAZY_MODE"
"""habana's variable for its mode: 1 collects operations into graphs, 0 does not."""
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
"""torch's variable: unless it is 0, each process that imports torch also imports habana, which takes seconds."""
RECIPE_CACHE = "PT_HPU_RECIPE_CACHE_CONFIG"
"""habana's variable for compiled graphs on disk: the folder, whether to empty it at the start, and its size in MB."""
CACHE_METRICS = "PT_HPU_ENABLE_CACHE_METRICS"
"""habana's variable: 1 counts hits of the recipe cache, at the price of a Python call for each launched graph."""
RECIPE_CACHE_MB = 20_000
"""Disk space of habana's compiled graphs on a node, in MB."""
MODULES_OF_A_NODE = 8
"""Number of HPUs of a Gaudi node."""
GRADIENT_VIEWS = "PT_HPU_EAGER_ENABLE_GRADIENT_VIEW_LAYOUT_OPT"
"""habana's variable: 1 lets gradients keep the layout of convolutions in eager mode. Intel advises it for images."""
AUTOMATIC_DYNAMIC = "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES"
"""torch's variable: 0 keeps Dynamo from giving a function's second shape a symbolic size, which habana's compiler
cannot convert. A warm worker meets it where another trial has other shapes."""
OWN_MODULE = "HLS_MODULE_ID"
"""habana's variable for the module that a process acquires."""


def environment() -> dict[str, str]:
    """Return the variables that Ray's processes need on a node: its modules, and no automatic import of habana.

    A container that was given devices by index has no list of modules, and without one Ray would hand out 0, 1, ...
    """
    modules = visible_modules() or present_modules()
    return {AUTOLOAD: "0", **({MODULES: ",".join(map(str, modules))} if modules else {})}


def worker_environment() -> dict[str, str]:
    """Return the variables that a worker needs before it imports torch."""
    preloaded = re.split(r"[:\s]+", os.environ.get("LD_PRELOAD", ""))
    libraries = [library for library in preloaded if "tcmalloc" not in library]
    return {
        # Lazy mode was the default up to SynapseAI 1.19, so eager mode is requested explicitly.
        LAZY_MODE: os.environ.get(LAZY_MODE, "0"),
        AUTOLOAD: "0",
        GRADIENT_VIEWS: os.environ.get(GRADIENT_VIEWS, "1"),
        AUTOMATIC_DYNAMIC: "0",
        # The node's workers share compiled graphs. "false" never empties the folder: otherwise each group's first rank
        # would delete the graphs of the others.
        RECIPE_CACHE: f"{recipe_folder()},false,{RECIPE_CACHE_MB}",
        # Intel's images preload tcmalloc, and Intel's ImageNet page says that its script crashes with it.
        **({"LD_PRELOAD": ":".join(libraries)} if libraries != preloaded else {}),
    }


def is_lazy() -> bool:
    """Whether habana's variable turns lazy mode on."""
    return os.environ.get(LAZY_MODE) == "1"


def compiled_graphs() -> Path | None:
    """Return the folder of this worker's compiled graphs."""
    folder = os.environ.get(RECIPE_CACHE, "").partition(",")[0]
    return Path(folder) if folder else None


def prepare_worker() -> None:
    """Name this worker's module, make the folder for compiled graphs, and stay on the cores near the module."""
    modules = os.environ.get(MODULES, "")
    if modules and "," not in modules:
        # Ray shows a worker its own module only. Without this, habana's import fails an assertion in child processes,
        # which inherit the variable.
        os.environ[OWN_MODULE] = modules
    if folder := compiled_graphs():
        folder.mkdir(parents=True, exist_ok=True)  # the driver chose the folder, perhaps on another node
    if OWN_MODULE in os.environ:
        bind_to_cores_near(int(os.environ[OWN_MODULE]))


def alignment_problem(indices: Sequence[int], nodes: int = 1) -> str | None:
    """Return why a trial should not use these modules of one node, if it uses so many nodes; None if it may.

    Intel supports 1, 2, 4 and 8 modules of a node, in the sets 0-1, 2-3, ... and 0-3, 4-7. A trial over several nodes
    uses whole nodes.
    """
    width, lowest = len(indices), min(indices)
    if sorted(indices) != list(range(lowest, lowest + width)) or lowest % width:
        return f"modules {sorted(indices)} are not an aligned set of {width}; something else holds part of the node"
    if nodes > 1 and width < MODULES_OF_A_NODE:
        return f"the trial takes several nodes, and has only modules {sorted(indices)} of one; the others are taken"
    return None


def visible_modules() -> list[int] | None:
    """Return the modules that HABANA_VISIBLE_MODULES lists, in order; None if it is not set.

    Raises:
        ValueError: It is not a list of modules. habana would raise too, but late and in each worker.
    """
    named = os.environ.get(MODULES)
    if named is None:
        return None
    modules = named.split(",")
    if not all(module.strip().isdecimal() for module in modules) or len(set(modules)) < len(modules):
        raise ValueError(
            f"{MODULES} must be numbers of modules, such as 0,1,2,3, but got {named!r}; unset it for all of the node"
        )
    return sorted(int(module) for module in modules)


def numbers_of(count: int) -> Sequence[int]:
    """Return the modules of this node if there are ``count`` of them. Another node's are assumed to be 0, 1, ..."""
    modules = visible_modules() or present_modules()
    return modules if len(modules) == count else range(count)


def present_modules() -> list[int]:
    """Return the modules that hl-smi lists on this node, in order; empty if it gives no answer."""
    return sorted(int(module) for (module,) in hl_smi("module_id") if module.isdecimal())


def hl_smi(*queries: str) -> list[list[str]]:
    """Return what Intel's hl-smi answers, one list for each device and without units; empty if it gives no answer.

    Memory is in MiB. It acquires no device. Intel's guide to hl-smi lists the queries, for example "index", "module_id"
    and "memory.used".
    """
    command = ["hl-smi", "-Q", ",".join(queries), "-f", "csv,noheader"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [[field.split() for field in line.split(",")] for line in printed.splitlines()]
    return [[words[0] for words in line] for line in lines if len(line) == len(queries) and all(line)]


def is_being_released(message: str) -> bool:
    """Whether habana reports that it did not get the device, after waiting for it for up to 60 s.

    Status 8 means that another process has it, 20 that this process has it, and 26 that it does not work yet: a reset
    takes longer than habana waits, or, for good, the driver is of another release than habana.
    """
    if "synStatus=26" in message:
        habana, answers = release_of(version_of("habana-torch-plugin")), hl_smi("driver_version")
        if habana and answers and release_of(answers[0][0]) != habana:
            return False
    return "Device acquire failed" in message or bool(re.search(r"synStatus=8\b", message))


def release_of(version: str) -> list[str]:
    """Return the release of a version, such as ["1", "24"]; empty if there is no version."""
    return re.findall(r"\d+", version)[:2]


def recipe_folder() -> Path:
    """Return the folder of compiled graphs, one for each release and chip, since their graphs differ."""
    release = version_of("habana-torch-plugin") or "unknown"
    return cache_root() / "recipes" / f"{release}-{_chip()}-bf16"


def has_habana() -> bool:
    """Whether Intel's habana_frameworks is installed, found without importing it."""
    return importlib.util.find_spec("habana_frameworks") is not None


@cache
def _chip() -> str:
    """Return the chip's name from hl-smi; torch would have to acquire a device."""
    answers = hl_smi("name")
    return answers[0][0] if answers else "unknown"
