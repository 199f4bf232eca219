"""The last checkpoint that a train loop has written itself, for those of its reports that come without one."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from gaudi_tune.base.files import GROUPS_FOLDER, retry_while_disk_is_full
from gaudi_tune.training.session import SaveFunction, WrittenCheckpoint

SUFFIX = ".written-"
"""What follows the name of a trial in the name of a folder with a copy."""


class LastWritten:
    """Keeps a copy of a checkpoint that came with a report, if the next reports may come without one.

    Loops for Ray write one every few reports, often into a folder that they delete or overwrite afterwards. A loop
    that writes one with each report is not slowed down: only its first is copied.
    """

    def __init__(self, trial: Path, start: Path | None) -> None:
        """Take the trial's folder and the checkpoint from which the trial continues; None if it begins, or does not
        save on this rank."""
        self._trial = trial
        self._start = None if start is None else WrittenCheckpoint(start)
        self._copy: WrittenCheckpoint | None = None
        self._wrote_before = self._skips = False
        self.behind = 0
        """How many reports ago the loop wrote what a checkpoint would have now."""

    def to_save(self, save: SaveFunction | None) -> SaveFunction | None:
        """Return what saves the trial at a report: what came with it, or the copy."""
        self._skips = self._skips or save is None
        if save is None and self._start is not None:
            self.copy_written(self._start)
        self._start = None
        uses_copy = save is None and self._copy is not None
        self.behind = self.behind + 1 if uses_copy else 0
        return self._copy if uses_copy else save

    def copy_written(self, written: WrittenCheckpoint) -> None:
        """Copy what came with a report, before the loop may delete it."""
        self.forget()
        if self._skips or not self._wrote_before:
            parent = self._trial.parent / GROUPS_FOLDER  # where it goes with the sweep, if this node sees that
            place = parent if parent.is_dir() else None
            folder = Path(tempfile.mkdtemp(prefix=self._trial.name + SUFFIX, dir=place))
            self._copy = WrittenCheckpoint(folder)
            retry_while_disk_is_full(lambda: written(folder), f"a copy of a checkpoint in {folder}")
        self._wrote_before = True

    def forget(self) -> None:
        """Delete the copy."""
        if self._copy is not None:
            shutil.rmtree(self._copy.folder, ignore_errors=True)
            self._copy = None


def drop_copies(sweep: Path, trial: str = "*") -> None:
    """Delete what lost workers of a trial have left in the folder of a sweep, or those of all its trials."""
    for folder in (sweep / GROUPS_FOLDER).glob(f"{trial}{SUFFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)
