"""Compiled graphs: each costs ``HABANA_STAND_IN_COMPILE_S`` seconds once, in its process and, where
``PT_HPU_RECIPE_CACHE_CONFIG`` names a folder, once on the node. Eight threads compile while the host goes on, which
waits only where it needs a result. Processes that come to the same graph together all compile it, as habana's do.
``compilations.jsonl``, beside the modules' locks, tells who compiled what."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import torch

from habana_frameworks.torch import _device, _hardware
from habana_frameworks.torch.hpu import metrics

_loaded: set[str] = set()
_collected: list[str] = []
"""What lazy mode has collected since the last mark_step."""


def run(graph: str, part: str) -> None:
    """Have the recipe of a graph: from this process, from the node's disk, or by compiling it.

    Args:
        graph: All that makes a graph another one: operations, constants, shapes and types.
        part: What it is of a model: forward or backward in training, inference, or operations that lazy mode collected.
    """
    _hardware.acquire()
    recipe = hashlib.sha256(graph.encode()).hexdigest()[:16]
    folder = os.environ.get("PT_HPU_RECIPE_CACHE_CONFIG", "").partition(",")[0]
    on_disk = Path(folder) / f"{recipe}.recipe"
    if recipe in _loaded or (folder and _is_whole(on_disk)):
        metrics.cached(hit=True)
    else:
        metrics.cached(hit=False)
        ready_at = _device.library().compile(_device.COMPILE_S)
        with (_hardware.FOLDER / "compilations.jsonl").open("a") as log:
            entry = {"time": time.monotonic(), "pid": os.getpid(), "recipe": recipe, "part": part}
            log.write(json.dumps(entry) + "\n")
        if folder:
            on_disk.write_text(str(ready_at))
    _loaded.add(recipe)


def _is_whole(recipe: Path) -> bool:
    """Whether a recipe is on disk, and not still being compiled."""
    return recipe.exists() and float(recipe.read_text() or "inf") <= time.monotonic()


def shape_of(tensor: torch.Tensor) -> str:
    """Return what a graph depends on of an input."""
    return f"{tuple(tensor.shape)} {tensor.dtype} {tensor.stride()}"


def collect(what: str) -> None:
    """Add to the graph that lazy mode collects."""
    if _device.LAZY:
        _collected.append(what)


def cut() -> None:
    """Run what lazy mode has collected."""
    if _collected:
        run("\n".join(_collected), "collected")
        _collected.clear()


def collect_modules(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
    """Collect a module's forward pass, with its constants; torch calls this before each in lazy mode."""
    shapes = [shape_of(value) for value in inputs if isinstance(value, torch.Tensor)]
    if shapes and not [*module.children()]:
        collect(f"{module} {module.training} {torch.is_grad_enabled()} {shapes}")
