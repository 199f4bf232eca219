"""Bringing sweeps back from a storage: to resume them here, or to look at them. Nothing that is read there is run."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from gaudi_tune.base import files
from gaudi_tune.base.errors import SweepError, first_line
from gaudi_tune.base.files import MAX_JSON_BYTES, OWNER_FILE, SWEEP_FILE
from gaudi_tune.base.node_cache import cache_root
from gaudi_tune.storage.owner import FRESH_S, Owner, check_gone, owner_in
from gaudi_tune.storage.remote import Entry, Remote, address_below, here

MAX_THREADS = 8
"""How many files are fetched at a time."""
VIEWED_BYTES = {
    SWEEP_FILE: MAX_JSON_BYTES,
    files.SUMMARY_FILE: MAX_JSON_BYTES,
    files.STATE_LOG: 2**28,
    files.OUTBOX_FILE: 2**20,  # its first line names the tracking store
}
"""The files that are fetched to look at a sweep, and how many bytes of each: one who can write to a storage cannot fill
the disks of all who look."""
RUNS_ELSEWHERE = "runs-elsewhere"
"""An empty file in the folder of a sweep that was fetched to look at it, if another machine runs the sweep."""
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
    has overtaken is moved aside: part of it may never have been sent.

    Raises:
        SweepError: There is no such sweep, or it is running.
    """
    remote, option = Remote(address_below(address, name), "--resume"), f"--resume {address_below(address, name)}"
    folder = working_folder(address) / name
    with errors_said(option):
        owner, working_owner = owner_in(remote), owner_in(here(folder))
        if working_owner is not None and owner is not None and working_owner.id == owner.id:
            return folder, owner
        entries = remote.files(recursive=False)
        if SWEEP_FILE not in entries:
            raise SweepError(f"{option}: no such sweep; {sweeps_in_words(address)}")
        check_gone(remote, owner, option)
        if working_owner is not None:
            folder.rename(folder.with_name(f"{name}.before-{time.strftime('%Y%m%d-%H%M%S')}"))
        shutil.rmtree(folder, ignore_errors=True)
        _fetch(remote, entries, folder)
    return folder, owner


def fetch_rest(address: str, name: str) -> None:
    """Complete the working copy of a sweep that this process has taken."""
    remote, folder = Remote(address_below(address, name), "--resume"), working_folder(address) / name
    if owner_in(here(folder)) is None:
        with errors_said(f"--resume {remote.address}"):
            _fetch(remote, remote.files(), folder)


def _fetch(remote: Remote, entries: Mapping[str, Entry], folder: Path) -> None:
    """Fetch files into a folder, with the times at which they were written. A folder with an owner is complete."""

    def fetch(name: str) -> None:
        with remote.open(name) as source:
            target.copy(source, name, entries[name].size)
        os.utime(folder / name, (entries[name].modified_at,) * 2)

    folder.mkdir(parents=True, exist_ok=True)
    target = here(folder)
    with ThreadPoolExecutor(MAX_THREADS) as threads:
        list(threads.map(fetch, entries.keys() - {OWNER_FILE}))  # raises the first error


def view(address: str, name: str | None = None) -> Path:
    """Return a folder with the sweeps of a storage, or with one of them. It lasts as long as this process.

    Args:
        address: The address of the storage.
        name: The sweep; None for all of them.
    """
    storage, folder = Remote(address), tempfile.TemporaryDirectory(prefix="gaudi-tune-")
    _views.append((folder, address))
    with errors_said(address):
        for sweep in [name] if name is not None else storage.folders():
            remote, target = Remote(address_below(address, sweep)), Path(folder.name, sweep)
            entries = remote.files(recursive=False)
            if SWEEP_FILE not in entries:
                continue
            viewed_files = {
                file: entries[file]._replace(size=min(entries[file].size, limit))
                for file, limit in VIEWED_BYTES.items()
                if file in entries
            }
            _fetch(remote, viewed_files, target)
            owner = owner_in(remote) if OWNER_FILE in entries else None
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
        raise SweepError(
            f"{source}: the storage cannot be read ({first_line(error)}); correct the address or the credentials, or "
            f"try again (docs/storage.md)"
        ) from error
