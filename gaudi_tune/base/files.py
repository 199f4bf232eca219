"""Lists the files of a folder."""

from __future__ import annotations

import os
from pathlib import Path


def files_below(root: Path) -> list[Path]:
    """Return the visible files below a folder in order, also those in linked folders. Each folder is entered once."""
    files, entered = [], set[str]()
    for folder, folders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        folders[:] = [name for name in folders if not name.startswith((".", "__")) and real not in entered]
        if real not in entered:
            files += [Path(folder, name) for name in names if not name.startswith(".")]
        entered.add(real)
    return sorted(files)
