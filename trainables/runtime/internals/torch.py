"""torch: settings of its compiler, and modules that change their class."""

from __future__ import annotations

import sys

from torch import nn

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
