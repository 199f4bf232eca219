"""The owner of a sweep: the process that runs it. Object stores have no locks, so its file there is a heartbeat."""

from __future__ import annotations

import socket
import time
import uuid

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import OWNER_FILE
from gaudi_tune.storage.remote import Remote

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


class Owner(BaseModel):
    """The process that runs or last ran a sweep."""

    model_config = ConfigDict(frozen=True, strict=True)

    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    """A text that no other process has."""
    host: str = Field(default_factory=socket.gethostname)
    beat: int = 0
    """A number that grows while it runs."""
    ended: bool = False
    """Whether it has ended, and the storage has all that it made."""

    @property
    def text(self) -> bytes:
        """The content of the file."""
        # A reader asks for the size first, then reads that many bytes.
        return self.model_dump_json().encode().ljust(LENGTH)

    def beaten(self, *, ended: bool = False) -> Owner:
        """Return the owner with its next beat."""
        return self.model_copy(update={"beat": self.beat + 1, "ended": ended})


def owner_in(remote: Remote) -> Owner | None:
    """Return the owner that a sweep's folder has, in a storage or here; None if it has none."""
    try:
        return Owner.model_validate_json(remote.read(OWNER_FILE))
    except FileNotFoundError:
        return None
    except ValidationError:
        return Owner(id="", host="", ended=True)


def check_gone(remote: Remote, owner: Owner | None, option: str) -> None:
    """Wait until it is clear that the owner of a sweep does not run it.

    Raises:
        SweepError: The owner runs it.
    """
    deadline = time.monotonic() + GONE_AFTER_S
    while owner is not None and not owner.ended and time.monotonic() < deadline:
        time.sleep(BEAT_S / 2)
        if owner_in(remote) != owner:
            raise SweepError(f"{option}: this sweep is running on {owner.host}; wait for it, or end it first")


def take(remote: Remote, seen_owner: Owner | None, owner: Owner) -> None:
    """Make ``owner`` the owner of a sweep, if ``seen_owner`` still is.

    Raises:
        SweepError: Another process was quicker.
    """
    rival = owner_in(remote)
    if rival == seen_owner:
        remote.write(OWNER_FILE, owner.text)
        if seen_owner is None:
            return
        time.sleep(SETTLE_S)
        rival = owner_in(remote)
    if rival is None or rival.id != owner.id:
        rival_place = "" if rival is None else f" on {rival.host}"
        raise SweepError(f"{remote.address}: this sweep has just begun{rival_place}; wait for it, or end it first")
