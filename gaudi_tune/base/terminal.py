"""The terminal, or what takes its place."""

from __future__ import annotations

import io
import sys


def replace_unknown_characters() -> None:
    """Have this process print "?" for each character that the terminal's encoding lacks, and not raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
