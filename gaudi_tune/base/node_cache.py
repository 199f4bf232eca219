"""Prepared data, which is made once per node and shared by every worker and every sweep on that node."""

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

from gaudi_tune.base.files import files_below


def cache_root() -> Path:
    """Return the folder of prepared data: ``$GAUDI_TUNE_CACHE``, or ``gaudi-tune`` in the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gaudi-tune"
    return Path(os.environ.get("GAUDI_TUNE_CACHE") or default)


def prepare_once(name: str, key: Mapping[str, Any], prepare: Callable[[Path], None]) -> Path:
    """Return the folder for ``key``. The first call on a node has ``prepare`` fill it; later calls find it there.

    Args:
        name: The first part of the folder's name, for people who look into the cache.
        key: Everything that the content depends on, as values that JSON can hold. Each key has its own folder.
        prepare: The function that fills the empty folder which it is given. If it fails, nothing is kept.
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
    """Let one of the processes that share ``folder`` run the block for ``key`` first, while the others wait.

    Once the first has finished, the others run the block side by side. If the first fails or is killed, the next one
    takes its place.
    """
    marker = folder / f"{_digest(key)}.done"
    if marker.exists():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{_digest(key)}.lock") as lock:
        if marker.exists():
            lock.release()
        yield
        marker.touch()


def _digest(key: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def fingerprint(source: str) -> list[Any]:
    """Return a value that changes when a local file or folder does (paths, sizes, times); for a hub name, the name."""
    path = Path(source).expanduser()
    if not source or not os.path.exists(path):  # in contrast to Path.exists, it answers for a name of any length, too
        return [source]
    files = files_below(path) if path.is_dir() else [path]
    # By its name, too: it may be a link, and a name says to which split a file belongs.
    return [[str(p.relative_to(path)), str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns] for p in files]
