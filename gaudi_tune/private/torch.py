"""torch: settings of its compiler, modules that change their class, and a process group that train loops share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from torch import distributed, nn

from gaudi_tune.private.surfaces import holds, part

with suppress(ImportError):
    from torch.distributed import distributed_c10d

RECOMPILE_LIMIT = 64
"""How often Dynamo may compile one function before it gives up and runs it uncompiled. torch's own limit is 8. Each
graph signature takes two, for training and evaluation."""

MOST_FUNCTIONS = 200
"""How many functions Dynamo may have compiled before all of them are forgotten."""


@part("compiler", lambda split: None)
def split_compiled_ddp(split: bool) -> None:
    """Choose whether Dynamo splits a data-parallel model at its communication buckets. There is no public setting."""
    import torch._dynamo

    torch._dynamo.config.optimize_ddp = split


@part("recompile-limit", lambda: None)
def expect_many_graphs() -> None:
    """Let Dynamo keep the graphs of many trials for one function."""
    from torch._dynamo import config  # the package may be about to be imported, and has no such attribute then

    config.recompile_limit = RECOMPILE_LIMIT


def forget_compiled(limit: int = RECOMPILE_LIMIT // 2) -> None:
    """Have Dynamo forget what it has compiled, if it has compiled one function more often than ``limit``.

    Functions that are loaded again for each trial count as others each time, so their number is limited as well.

    ``torch.compiler.reset()`` is public, but would import Dynamo, which takes seconds, in processes that never compile.
    """
    compiled = _compilations()
    if max(compiled.values(), default=0) > limit or len(compiled) > MOST_FUNCTIONS:
        sys.modules["torch._dynamo"].reset()


def uncompiled_functions() -> int:
    """Return how many functions have come to Dynamo's limit: it runs them uncompiled, and says so in a log only."""
    compiled = _compilations()
    return sum(count > sys.modules["torch._dynamo.config"].recompile_limit for count in compiled.values())


def _compilations() -> dict[Any, int]:
    """Return how often Dynamo has compiled each function since it was last reset."""
    converted = sys.modules.get("torch._dynamo.convert_frame")
    return dict(converted.FRAME_COMPILE_COUNTER) if converted is not None and holds("compiler") else {}


def seconds_compiling() -> float:
    """Return the seconds that ``torch.compile`` has traced and compiled in this process since it was last reset.

    A backend that compiles when a graph first runs is not included. There is no public name for this.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    return float(dynamo.calculate_time_spent()["total_wall_time"]) if dynamo and holds("compiler") else 0.0


def change_class(module: nn.Module, subclass: type[nn.Module]) -> None:
    """Change the class of ``module`` to a subclass that adds no state.

    torch itself replaces modules (``convert_sync_batchnorm``), which loses hooks, and other references keep the old
    one.
    """
    assert issubclass(subclass, type(module))
    module.__class__ = subclass


@part("process-group", nullcontext)
@contextmanager
def process_group_kept() -> Iterator[None]:
    """Keep the process group of this process inside the block, even if a train loop makes or destroys one.

    Scripts for ``torchrun`` begin with ``init_process_group()``, which raises an error if there is a process group.
    Many end with ``destroy_process_group()``, as accelerate's ``end_training()`` does, so that the next trial would
    have none. Code that is imported inside the block gets the replaced functions, too.
    """
    originals = {name: getattr(distributed, name) for name in ("init_process_group", "destroy_process_group")}

    def init_process_group(*arguments: Any, **options: Any) -> None:
        if not distributed.is_initialized():
            originals["init_process_group"](*arguments, **options)

    def destroy_process_group(group: Any = None) -> None:
        if group is not None and group is not distributed.group.WORLD:
            originals["destroy_process_group"](group)

    replacements = {"init_process_group": init_process_group, "destroy_process_group": destroy_process_group}
    _set(replacements)
    try:
        yield
    finally:
        _set(originals)


def _set(functions: dict[str, Any]) -> None:
    for module in (distributed, distributed_c10d):  # pickle looks for them in the second
        for name, function in functions.items():
            setattr(module, name, function)
