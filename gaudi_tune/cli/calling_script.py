"""The script that calls this package, and the command that started it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def calling_script() -> Mapping[str, Any]:
    """Return the globals of the script whose code is running, such as ``__file__``.

    Under a profiler or a debugger the module ``__main__`` is not the script, but the tool that runs it.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") != "__main__":
        frame = frame.f_back
    return vars(sys.modules["__main__"]) if frame is None else frame.f_globals


def command_of(script: Mapping[str, Any]) -> list[str]:
    """Return the command that started a script, without its arguments."""
    spec = script.get("__spec__")
    if spec is None or spec.name == "__main__":  # a file, or a folder or an archive with a __main__.py
        return ["python", sys.argv[0]]
    return ["python", "-m", spec.name.removesuffix(".__main__")]


def source_of(script: Mapping[str, Any]) -> bytes | None:
    """Return the text of a script, which may be in a zip archive; None if there is none, as in a notebook."""
    if not script.get("__file__"):
        return None
    path = Path(script["__file__"])
    if path.is_file():
        return path.read_bytes()
    in_archive: bytes | None = getattr(script.get("__loader__"), "get_data", lambda path: None)(str(path))
    return in_archive
