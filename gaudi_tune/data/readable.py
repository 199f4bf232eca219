"""Finds the images of a folder that cannot be read. Each file is decoded once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.progress import track

PROGRESS_FROM = 20_000
"""Number of files from which on progress is shown."""


def unreadable(root: Path, files: Sequence[str]) -> dict[str, str]:
    """Return the files below ``root`` that cannot be read as images, and why."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = track(
            pool.map(lambda file: _read_problem(root / file), files),
            f"checking {len(files):,} images",
            total=len(files),
            console=Console(stderr=True),
            disable=len(files) < PROGRESS_FROM,
        )
        return {file: problem for file, problem in zip(files, problems, strict=True) if problem}


def _read_problem(file: Path) -> str | None:
    try:
        with Image.open(file) as image:
            # A JPEG is decoded at an eighth of its size, which is five times faster and still finds truncated files.
            image.draft("RGB", (1, 1))
            image.load()
            if image.mode in ("I", "F"):
                return f"pixels of mode {image.mode} have no agreed range; save it with 8 or 16 bits"
    except Exception as error:
        # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error and others for broken files.
        return str(error).replace(f" {str(file)!r}", "") or type(error).__name__
    return None
