"""torch: settings of its compiler, and modules that change their class."""

from __future__ import annotations

import sys

from torch import nn


def split_compiled_ddp(split: bool) -> None:
    """Choose whether Dynamo splits a data-parallel model at its communication buckets; no public setting does."""
    import torch._dynamo

    torch._dynamo.config.optimize_ddp = split


def forget_compiled() -> None:
    """Have Dynamo forget what it has compiled, if anything was. ``torch.compiler.reset()`` is public, and would import
    Dynamo, seconds long, in each process that never compiles."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


def change_class(module: nn.Module, to: type[nn.Module]) -> None:
    """Make ``module`` one of its own subclass ``to`` that adds no state. torch's way is to put new modules in place of
    the old (``convert_sync_batchnorm``), which loses hooks and leaves every other reference with the old one."""
    assert issubclass(to, type(module))
    module.__class__ = to
