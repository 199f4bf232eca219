"""The notice that a machine will be gone in seconds: running trials save between two reports, and continue from there.

The sweep gives it as a file in its folder. Rank 0 of each trial looks for the file after every step, and saves once. If
its node does not see the folder, its trial actor asks it, and gets what it saves.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger(__name__)

NOTICE_FILE = "save-now"
"""The file in a sweep's folder. It has the ids of the nodes that will be gone; none stands for all nodes."""
LOOK_EVERY_S = 0.2
"""How often a worker looks for the file: a look at a network disk costs more than a step may."""
_FOLDER = "between_{reports:06d}"
_FOLDERS = "between_" + 6 * "[0-9]"


def give_notice(sweep: Path, nodes: Iterable[str] = ()) -> float:
    """Ask the running trials of a sweep to save, and return the time of the notice."""
    file = sweep / NOTICE_FILE
    file.write_text("\n".join(nodes))
    return file.stat().st_mtime


def withdraw_notice(sweep: Path) -> None:
    """Take the notice back: the sweep goes on."""
    (sweep / NOTICE_FILE).unlink(missing_ok=True)


def notice_for(sweep: Path, node: str) -> int | None:
    """Return when the nodes of a sweep, or this one, were given notice, in nanoseconds; None if they were not."""
    file = sweep / NOTICE_FILE
    try:
        notice_time, nodes = file.stat().st_mtime_ns, file.read_text().split()
    except OSError:
        return None
    return notice_time if not nodes or node in nodes else None


class NoticeBoard:
    """A worker's view of the notice, for one trial."""

    def __init__(self, trial: Path, node: str, reports: int) -> None:
        """Look in the folder above the trial's. The trial has made so many ``reports``."""
        self._trial, self._node, self.reports = trial, node, reports
        self._look_at = 0.0
        self._saved_for: int | None = None  # the time of the notice for which the trial has saved

    def save_if_asked(self, save: Callable[[Path], None]) -> None:
        """Save the trial if there is a notice for its node, for which it has not saved."""
        look_time = time.monotonic()
        if look_time < self._look_at:
            return
        self._look_at = look_time + LOOK_EVERY_S
        notice_time = notice_for(self._trial.parent, self._node)
        if notice_time not in (None, self._saved_for):
            self._saved_for = notice_time
            try:
                save_between(self._trial, self.reports, save)
            except OSError as error:
                logger.warning("%s continues from its last checkpoint, because none was saved: %s", self._trial, error)


class Between(NamedTuple):
    """A checkpoint that a trial has written between two reports."""

    reports: int
    """How many reports the trial had made."""
    folder: Path


def save_between(trial: Path, reports: int, save: Callable[[Path], None]) -> None:
    """Write a checkpoint between two reports. Its folder gets its name once it is whole."""
    folder = trial / _FOLDER.format(reports=reports)
    partial = folder.with_suffix(".partial")
    for leftover in (partial, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir(parents=True)
    save(partial)
    partial.touch()  # what comes from another node has that node's time
    partial.rename(folder)


def last_between(trial: Path) -> Between | None:
    """Return the newest checkpoint that the trial has written between two reports; None if there is none."""
    folder = max(trial.glob(_FOLDERS), default=None)
    return None if folder is None else Between(int(folder.name.rpartition("_")[2]), folder)


def saved_since(trial: Path, notice_time: float) -> bool:
    """Whether a trial has saved between two reports since a notice was given."""
    between = last_between(trial)
    return between is not None and between.folder.stat().st_mtime >= notice_time


def drop_between(trial: Path) -> None:
    """Delete the checkpoints between reports: the trial has a newer one."""
    for folder in trial.glob("between_*"):
        shutil.rmtree(folder, ignore_errors=True)
