"""The owner of a sweep: the process that runs it. Object stores have no locks, so it writes to a file there often."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import from_json, read_json_text
from gaudi_tune.storage.remote import Remote

OWNER_FILE = "owner.json"
"""The file of the process that runs or last ran a sweep, in the sweep's folder here and in the storage."""
LENGTH = 512
"""The size to which the file is padded, so that all of its versions have the same size."""
BEAT_S = 4.0
"""The most seconds between two writes of the file while the storage answers."""
GONE_AFTER_S = 20.0
"""The seconds without a change after which the process counts as gone. No clocks are compared."""
SETTLE_S = 2.0
"""How long a process that takes a sweep waits to see whether another one has taken it at the same time."""
FRESH_S = 60.0
"""A sweep whose file is younger, by this machine's clock, is shown as running."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that runs or last ran a sweep."""

    id: str
    """A text that no other process has."""
    host: str = ""
    beat: int = 0
    """A number that grows while it runs."""
    ended: bool = False
    """Whether it has ended, and the storage has all that it made."""

    def write(self, remote: Remote) -> None:
        """Write it to the storage."""
        remote.write(OWNER_FILE, self.text)

    @property
    def text(self) -> bytes:
        """The content of the file."""
        # A reader asks for the size first, then reads that many bytes.
        return json.dumps(asdict(self)).encode().ljust(LENGTH)


def new_owner(owner_id: str) -> Owner:
    """Return this process as the owner of a sweep."""
    return Owner(id=owner_id, host=socket.gethostname())


def stored_owner(remote: Remote) -> Owner | None:
    """Return the owner that the storage has; None if it has none."""
    try:
        return _parsed_owner(remote.read(OWNER_FILE))
    except FileNotFoundError:
        return None


def local_owner(folder: Path) -> Owner | None:
    """Return the owner as the local folder of a sweep has it; None if that was not written, or not fetched whole."""
    try:
        return _parsed_owner(read_json_text(folder / OWNER_FILE))
    except OSError:
        return None


def _parsed_owner(text: bytes) -> Owner:
    try:
        entry = from_json(text)
        owner = Owner(
            id=str(entry["id"]), host=str(entry["host"]), beat=int(entry["beat"]), ended=entry["ended"] is True
        )
    except (ValueError, TypeError, LookupError):
        return Owner(id="", ended=True)
    return owner


def check_gone(remote: Remote, owner: Owner | None, option: str) -> None:
    """Wait until it is clear that the owner of a sweep does not run it.

    Raises:
        SweepError: The owner runs it.
    """
    deadline = time.monotonic() + GONE_AFTER_S
    while owner is not None and not owner.ended and time.monotonic() < deadline:
        time.sleep(BEAT_S / 2)
        if stored_owner(remote) != owner:
            raise SweepError(f"{option}: this sweep is running on {owner.host}; wait for it, or end it first")


def take(remote: Remote, seen_owner: Owner | None, owner: Owner) -> None:
    """Make ``owner`` the owner of a sweep, if ``seen_owner`` still is.

    Raises:
        SweepError: Another process was quicker.
    """
    rival = stored_owner(remote)
    if rival == seen_owner:
        owner.write(remote)
        if seen_owner is None:
            return
        time.sleep(SETTLE_S)
        rival = stored_owner(remote)
    if rival is None or rival.id != owner.id:
        rival_place = "" if rival is None else f" on {rival.host}"
        raise SweepError(f"{remote.address}: this sweep has just begun{rival_place}; wait for it, or end it first")


def beaten(owner: Owner, *, ended: bool = False) -> Owner:
    """Return the owner with its next beat."""
    return replace(owner, beat=owner.beat + 1, ended=ended)
