"""The terminal, or what takes its place."""

from __future__ import annotations

import io
import os
import shutil
import sys

MIN_WIDTH = 40
"""Characters of a line that help and tables need: in less than ten, they would be laid out without an end."""


def prepare_terminal() -> None:
    """Have this process print to any terminal without an error.

    It prints "?" for each character that the terminal's encoding lacks, nothing where a standard file is closed, and
    for lines of some length, also where the variables COLUMNS and LINES say otherwise, or nothing of use.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    width = shutil.get_terminal_size().columns
    if "COLUMNS" in os.environ or width < MIN_WIDTH:
        os.environ["COLUMNS"] = str(max(width, MIN_WIDTH))
    if not os.environ.get("LINES", "1").isdecimal():
        del os.environ["LINES"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, whose output goes to a cell."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")
