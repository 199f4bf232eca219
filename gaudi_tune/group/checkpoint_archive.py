"""Checkpoints that pass between a trial actor and workers on other nodes, by way of Ray, as the bytes of an archive."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path


def pack(folder: Path) -> bytes:
    """Return the files of a folder, those behind links too, as an archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", dereference=True) as writer:
        writer.add(folder, arcname=".")
    return archive.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """Write the files of an archive that :func:`pack` returned into a folder, which exists."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
        reader.extractall(folder, filter="data")
