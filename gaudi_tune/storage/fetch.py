"""Bringing sweeps back from a storage: to resume them here, or to look at them. Nothing that is read there is run."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.node_cache import cache_root
from gaudi_tune.storage.appended import PART, whole_content
from gaudi_tune.storage.owner import FRESH_S, OWNER_FILE, Owner, check_gone, local_owner, stored_owner
from gaudi_tune.storage.remote import Entry, Remote, address_below

MAX_THREADS = 8
"""How many files are fetched at a time."""
RUNS_ELSEWHERE = "runs-elsewhere"
"""An empty file in the folder of a sweep that was fetched to look at it, if another machine runs the sweep."""
SWEEP_FILE = "sweep.json"  # as ``sweep.record`` writes it
_views: list[tuple[tempfile.TemporaryDirectory[str], str]] = []
"""The folders with sweeps that were fetched to look at them, and the addresses of their storages. They go when this
process ends."""


def working_folder(address: str) -> Path:
    """Return the folder of the working copies of the sweeps of a storage: in the cache of this machine."""
    words = re.sub(r"[^\w.-]+", "-", address.partition("?")[0]).strip("-")[-60:]
    return cache_root() / "storage" / f"{words}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"


def fetch_to_resume(address: str, name: str) -> tuple[Path, Owner | None]:
    """Fetch the working copy of a sweep into its folder, without its checkpoints.

    Returns:
        The folder, and the owner of the sweep.

    If this machine ran the sweep last, its copy is the newest and stays as it is. Otherwise a copy that another machine
    has overtaken is moved aside.

    Raises:
        SweepError: There is no such sweep, or it is running.
    """
    remote, option = Remote(address_below(address, name), "--resume"), f"--resume {address_below(address, name)}"
    folder = working_folder(address) / name
    with errors_said(option):
        owner, working_owner = stored_owner(remote), local_owner(folder)
        if working_owner is not None and owner is not None and working_owner.id == owner.id:
            return folder, owner
        entries = remote.files(recursive=False)
        if SWEEP_FILE not in entries:
            raise SweepError(f"{option}: no such sweep; {sweeps_in_words(address)}")
        check_gone(remote, owner, option)
        if working_owner is not None:
            _move_aside(folder)
        shutil.rmtree(folder, ignore_errors=True)
        fetch_files(remote, entries, folder)
    return folder, owner


def _move_aside(folder: Path) -> None:
    """Keep this machine's copy of a sweep that another one has continued: part of it may never have been sent."""
    target = folder.with_name(f"{folder.name}.before-{time.strftime('%Y%m%d-%H%M%S')}")
    folder.rename(target)


def fetch_rest(address: str, name: str) -> None:
    """Complete the working copy of a sweep that this process has taken."""
    remote, folder = Remote(address_below(address, name), "--resume"), working_folder(address) / name
    if local_owner(folder) is not None:
        return
    with errors_said(f"--resume {address_below(address, name)}"):
        entries = remote.files()
        fetch_files(remote, entries, folder)


def fetch_files(
    remote: Remote, entries: Mapping[str, Entry], folder: Path, name_filter: Callable[[str], bool] = lambda name: True
) -> None:
    """Fetch files into a folder, with the times at which they were written."""

    def fetch(name: str) -> None:
        file, entry = folder / name, entries[name]
        if f"{name}.part-" in joined:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(whole_content(remote, name, entries))
        else:
            remote.download(name, file)
        os.utime(file, (entry.modified_at, entry.modified_at))

    joined = " ".join(name for name in entries if PART.fullmatch(name))
    names = [name for name in entries if name_filter(name) and not PART.fullmatch(name) and name != OWNER_FILE]
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(MAX_THREADS) as threads:
        for _ in threads.map(fetch, names):
            pass


def view(address: str, name: str | None, files: Iterable[str], checkpoint: str = "") -> Path:
    """Return a folder with the sweeps of a storage, or with one of them. It lasts as long as this process.

    Args:
        address: The address of the storage.
        name: The sweep; None for all of them.
        files: The names of the files that are needed.
        checkpoint: A checkpoint that is also needed, as a path in the sweep; "" for none.
    """
    storage = Remote(address, "--storage")
    folder = tempfile.TemporaryDirectory(prefix="gaudi-tune-")
    _views.append((folder, address))
    wanted_names = {*files}
    with errors_said(address):
        for sweep in [name] if name is not None else storage.folders():
            remote, target = Remote(address_below(address, sweep)), Path(folder.name, sweep)
            entries = remote.files(recursive=bool(checkpoint))
            if SWEEP_FILE not in entries:
                continue
            fetch_files(
                remote, entries, target, lambda name: name in wanted_names or name.startswith(f"{checkpoint or ' '}/")
            )
            owner = stored_owner(remote) if OWNER_FILE in entries else None
            if owner is not None and not owner.ended and time.time() - entries[OWNER_FILE].modified_at < FRESH_S:
                (target / RUNS_ELSEWHERE).touch()
    return Path(folder.name)


def shown_place(folder: Path) -> str:
    """Return a folder of sweeps, or of a sweep, as a user names it: by its address if it was fetched to look at it."""
    for viewed, address in _views:
        if folder.is_relative_to(viewed.name):
            names = folder.relative_to(viewed.name).parts
            return address_below(address, "/".join(names)) if names else address
    return str(folder)


def sweeps_in_words(address: str) -> str:
    """Say which sweeps a storage has."""
    folders = Remote(address).folders()
    names = [name for name in folders if SWEEP_FILE in Remote(address_below(address, name)).files(recursive=False)]
    return f"found in {address}: {', '.join(names) or 'none'}"


@contextmanager
def errors_said(source: str) -> Iterator[None]:
    """Turn an error of a storage inside the block into a SweepError."""
    try:
        yield
    except OSError as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise SweepError(
            f"{source}: the storage cannot be read ({reason}); correct the address or the credentials, or try again "
            f"(docs/storage.md)"
        ) from error
