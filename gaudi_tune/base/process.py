"""What belongs to this process: its terminal, its environment variables, its garbage collector."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


def prepare_terminal() -> None:
    """Have this process print to any terminal without an error: "?" for each character that its encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, whose output goes to a cell."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def changed_environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables inside the block, whatever the user has set; those of None are removed."""
    originals = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(originals)


@contextmanager
def temporary_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the block, except those that the user has set."""
    with changed_environment({name: value for name, value in variables.items() if name not in os.environ}):
        yield


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch the garbage collector off inside the block.

    While libraries are imported it runs again and again, which takes a fifth to a quarter of the time and finds next to
    nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
