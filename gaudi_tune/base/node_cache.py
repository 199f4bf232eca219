"""Prepared data, made once per node and shared by every worker and every sweep on it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock


def cache_root() -> Path:
    """Return the folder of prepared data: ``$GAUDI_TUNE_CACHE``, or ``gaudi-tune`` in the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gaudi-tune"
    return Path(os.environ.get("GAUDI_TUNE_CACHE") or default)


def prepare_once(name: str, key: Mapping[str, Any], prepare: Callable[[Path], None]) -> Path:
    """Return the folder that ``prepare`` filled for ``key``, which is filled only once on each node.

    Args:
        name: The first part of the folder's name, for people who look into the cache.
        key: Everything the content depends on, JSON-able. Another key is another folder.
        prepare: Fills the empty folder that it is given. The result appears whole or not at all.
    """
    folder = cache_root() / f"{name}-{_digest(key)}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):  # the system releases the lock when the process ends, however it ends
        if not folder.is_dir():
            partial = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
            partial.mkdir()  # with the umask's permissions; tempfile's are for one user alone
            try:
                prepare(partial)
                partial.replace(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder


@contextmanager
def first_alone(folder: Path, key: Mapping[str, Any]) -> Iterator[None]:
    """Let one process of those that share ``folder`` run the block for ``key`` first, and alone; the others wait for
    it, and then run it at once. Where the first fails or is killed, another is the first."""
    lock, done = (folder / f"{_digest(key)}.{what}" for what in ("lock", "done"))
    if done.exists():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(lock) as held:
        if done.exists():
            held.release()
        yield
        done.touch()


def _digest(key: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def fingerprint(source: str) -> list[Any]:
    """Return what changes when a local file or folder changes: paths, sizes, times. Of a name on the hub, the name."""
    path = Path(source)
    if not path.exists():
        return [source]
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return [[str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns] for p in files]
