"""torch: settings of its compiler, modules that change their class, and a process group that its loops share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import distributed, nn
from torch.distributed import distributed_c10d

RECOMPILE_LIMIT = 64
"""How often Dynamo may compile one function before it gives up and runs it uncompiled; torch's own limit is 8. What is
compiled for a signature of a graph takes two: training and evaluation."""


def split_compiled_ddp(split: bool) -> None:
    """Choose whether Dynamo splits a data-parallel model at its communication buckets; no public setting does."""
    import torch._dynamo

    torch._dynamo.config.optimize_ddp = split


def expect_many_graphs() -> None:
    """Let Dynamo keep the graphs of many trials for one function."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT


def forget_compiled(if_more_than: int = RECOMPILE_LIMIT // 2) -> None:
    """Have Dynamo forget what it has compiled, if it has compiled one function more often than that.

    ``torch.compiler.reset()`` is public, and would import Dynamo, seconds long, in each process that never compiles.
    """
    if "torch._dynamo.convert_frame" in sys.modules:
        compiled = sys.modules["torch._dynamo.convert_frame"].FRAME_COMPILE_COUNTER
        if max(compiled.values(), default=0) > if_more_than:
            sys.modules["torch._dynamo"].reset()


def seconds_compiling() -> float:
    """Return the seconds in which ``torch.compile`` has traced and compiled in this process, since it last forgot;
    without those of a backend that compiles when a graph first runs. Nothing public says it."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return float(dynamo.calculate_time_spent()["total_wall_time"]) if dynamo is not None else 0.0


def change_class(module: nn.Module, to: type[nn.Module]) -> None:
    """Make ``module`` one of its own subclass ``to`` that adds no state. torch's way is to put new modules in place of
    the old (``convert_sync_batchnorm``), which loses hooks and leaves every other reference with the old one."""
    assert issubclass(to, type(module))
    module.__class__ = to


@contextmanager
def process_group_kept() -> Iterator[None]:
    """Have loops that make and end a process group of their own use the one that is there, inside the block.

    Scripts for ``torchrun`` begin with ``init_process_group()``, which raises where there is one, and many end with
    ``destroy_process_group()``, as accelerate's ``end_training()`` does: the next trial would have none. Code that is
    imported inside the block gets these functions, too.
    """
    usual = {name: getattr(distributed, name) for name in ("init_process_group", "destroy_process_group")}

    def init_process_group(*arguments: Any, **named: Any) -> None:
        if not distributed.is_initialized():
            usual["init_process_group"](*arguments, **named)

    def destroy_process_group(group: Any = None) -> None:
        if group is not None and group is not distributed.group.WORLD:
            usual["destroy_process_group"](group)

    ours = {"init_process_group": init_process_group, "destroy_process_group": destroy_process_group}
    _set(ours)
    try:
        yield
    finally:
        _set(usual)


def _set(functions: dict[str, Any]) -> None:
    for module in (distributed, distributed_c10d):  # the second is where pickle looks for them
        for name, function in functions.items():
            setattr(module, name, function)
