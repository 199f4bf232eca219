"""Finds the images of a folder that cannot be read. Each file is decoded once per node, also if a check ends early."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.progress import track

from gaudi_tune.base.node_cache import cache_root

CHUNK = 1000
"""How many files are decoded before it is noted on disk which of them can be read."""
PROGRESS_FROM = 20_000
"""Number of files from which on progress is shown."""
MARK_BYTES = 16


def unreadable(root: Path, files: Sequence[str]) -> dict[str, str]:
    """Return the files below ``root`` that cannot be read as images, and why.

    Files that could be read earlier and have the same size and time since are not decoded again.
    """
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:MARK_BYTES]
    record = cache_root() / f"readable-images-{name}"
    record.parent.mkdir(parents=True, exist_ok=True)
    content = record.read_bytes() if record.is_file() else b""
    readable = {content[start : start + MARK_BYTES] for start in range(0, len(content), MARK_BYTES)}
    bad: dict[str, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool, record.open("ab") as new:
        for chunk in _with_progress(files):
            marks = dict(zip(chunk, pool.map(lambda file: _mark(root / file), chunk), strict=True))
            new_files = [file for file, mark in marks.items() if mark not in readable]
            reasons = dict(zip(new_files, pool.map(lambda file: _read_problem(root / file), new_files), strict=True))
            bad |= {file: reason for file, reason in reasons.items() if reason}
            new.write(b"".join(marks[file] for file, reason in reasons.items() if not reason))
            new.flush()
    return bad


def _with_progress(files: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the files in chunks, and show how many are done, if they are many."""
    chunks = [files[start : start + CHUNK] for start in range(0, len(files), CHUNK)]
    console, is_quick = Console(stderr=True), len(files) < PROGRESS_FROM
    yield from track(chunks, f"checking {len(files):,} images", console=console, disable=is_quick)


def _mark(file: Path) -> bytes:
    """Return what tells a file, as it is now, from others."""
    try:
        status = file.stat()
    except OSError:
        return b""  # which is in no record
    about = os.fsencode(file) + f"\0{status.st_size}\0{status.st_mtime_ns}".encode()
    return hashlib.blake2b(about, digest_size=MARK_BYTES).digest()


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
