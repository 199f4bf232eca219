"""The addresses of storages among the options of a sweep; folders of this machine replace them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import SWEEP_FILE
from gaudi_tune.define.options import DEFAULT_STORAGE, RESUME_AUTO, SweepOptions
from gaudi_tune.storage.fetch import errors_said, fetch_to_resume, working_folder
from gaudi_tune.storage.owner import Owner
from gaudi_tune.storage.remote import Remote, address_below, address_of, split
from gaudi_tune.sweep.record.lock import is_running


class StoragePlaces(NamedTuple):
    """What the options of a sweep say about storages."""

    options: SweepOptions
    """The options, with folders of this machine in place of addresses."""
    address: str = ""
    """The address of the storage that gets a copy of the sweep; "" if there is none."""
    owner: Owner | None = None
    """The owner of a sweep there that is resumed."""
    fetched_from: tuple[str, str] | None = None
    """The storage and the name of a resumed sweep that is to be fetched."""


def find_storages(options: SweepOptions) -> StoragePlaces:
    """Check the storages that the options name, and fetch what the plan needs of a sweep there.

    Raises:
        SweepError: A storage cannot be used, or does not have the sweep.
    """
    address = address_of(options.storage) or ""
    resumed = None if options.resume is None else address_of(options.resume)
    if resumed is not None:
        parent_address, name = split(resumed)
        if options.name is None and options.storage != DEFAULT_STORAGE and address != parent_address:
            raise SweepError(
                f"--resume {resumed} --storage {address or options.storage}: without --name, a sweep continues in the "
                f"storage that has it; leave --storage out, or copy the sweep there under a new name (--name NEW)"
            )
        address = parent_address if options.name is None else address
    elif options.resume == RESUME_AUTO:
        parent_address, name = address, options.name or ""
    elif options.resume is not None and address and not (options.name and Path(options.resume).is_dir()):
        parent_address, name = address, options.resume
    else:
        parent_address = name = ""
    if address:
        Remote(address).check()
        options = replace(options, storage=working_folder(address))
    is_auto = options.resume == RESUME_AUTO
    if not (parent_address and name) or (is_auto and not _has_sweep(address, name)):
        return StoragePlaces(options, address)
    if is_running(working_folder(parent_address) / name):
        raise SweepError(f"--resume {options.resume}: this sweep is running; wait for it, or end it first")
    folder, owner = fetch_to_resume(parent_address, name)
    keeps_storage = options.name in (None, name) and address == parent_address
    if not is_auto:
        options = replace(options, resume=str(folder))
    return StoragePlaces(options, address, owner if keeps_storage else None, (parent_address, name))


def check_name_is_free(places: StoragePlaces, name: str) -> None:
    """Check that the storage has no other sweep of this name."""
    if not places.address or places.fetched_from == (places.address, name):
        return
    if _has_sweep(places.address, name):
        address = address_below(places.address, name)
        raise SweepError(
            f"--name {name}: a sweep in {places.address} has this name; take another, or resume it (--resume "
            f"{address}; in Python, resume={address!r})"
        )


def _has_sweep(address: str, name: str) -> bool:
    with errors_said(f"--storage {address}"):
        return SWEEP_FILE in Remote(address_below(address, name)).files(recursive=False)
