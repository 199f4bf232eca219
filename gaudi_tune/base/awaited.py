"""What a trial waits for on new workers: its trial actor notes it in a file, and the sweep's process reads that."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from gaudi_tune.base.files import GROUPS_FOLDER

Awaited: TypeAlias = Literal["devices", "workers", "report"]
"""In this order: Ray's placement of the workers; their processes, imports and devices; the loop's first report."""


def note_awaited(sweep: Path, trial: str, awaited: Awaited | None) -> None:
    """Note what a trial waits for; None: for nothing. Without the note the sweep continues all the same."""
    file = sweep / GROUPS_FOLDER / f"{trial}.awaits"
    with suppress(OSError):
        if awaited is None:
            file.unlink(missing_ok=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(awaited)


def read_awaited(sweep: Path, trial: str) -> str:
    """Return what a trial waits for; "" if that is not noted."""
    with suppress(OSError, UnicodeError):
        return (sweep / GROUPS_FOLDER / f"{trial}.awaits").read_text()
    return ""
