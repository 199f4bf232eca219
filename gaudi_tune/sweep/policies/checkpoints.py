"""Two policies: which reports deserve a checkpoint, and which checkpoints to delete when they take too much space."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path

from pydantic import ByteSize

from gaudi_tune.sweep.record.events import BY_HAND
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState, number_in_name

logger = logging.getLogger(__name__)

N_KEPT_UNENDED = 2
"""A trial that has not ended keeps so many checkpoints: after a crash, a snapshot may name the one before the last."""


def wants_checkpoint(state: SweepState, trial: TrialState, every_s: float) -> bool:
    """Return whether a trial should write a checkpoint of the report that ``state`` has just applied.

    It should

    - if the report is the best of the sweep so far (with several objectives: on its front), or the best of those that
      can be saved,
    - if the trial ends now as the best by its last value of those that have ended,
    - if a person stops it,
    - if it has trained ``every_s`` seconds without a checkpoint, or the sweep ends early.

    So the best trial has a checkpoint, whether its best or its last value counts, no trial loses more than a while's
    work, and most trials that are stopped early never write one. Tune asks for the checkpoint of a trial that pauses.
    """
    is_ending = trial.decision.verdict not in ("continue", "pause")
    if trial.decision == BY_HAND:
        return True
    if not is_ending and (state.ending is not None or time.monotonic() - trial.safe_since >= every_s):
        return True
    if trial.value is None:
        return False
    # A tie leads, too: the best by another rule, such as the lower number, then has a checkpoint.
    if state.leads(trial) or state.saves_best(trial):
        return True
    best_at_end = state.best_at_end.value if state.best_at_end is not None else None
    return is_ending and (best_at_end is None or not state.objective.better(best_at_end, than=trial.value))


class CheckpointBudget:
    """Deletes checkpoints, the worst first, when all of them take more than they may.

    It keeps in any case: the checkpoints of the trials with the best value (with several objectives: of all on the
    front) and with the best last value, the last two of a trial that trains, and what is in use. The checkpoints of
    trials that wait are deleted after all others. A trial whose checkpoint is gone continues from an older one, or
    starts from its beginning.

    Trials that waited in vain lose their checkpoints at once.
    """

    def __init__(self, folder: Path, limit: int | None, delete: Callable[[Path], Future[None]]) -> None:
        """Keep the checkpoints of the sweep in ``folder`` within so many bytes on disk; None for no limit.

        ``delete`` has a thread delete a folder: a disk may take long, or stall.
        """
        self._folder, self._limit, self._delete = folder, limit, delete
        self._deletions: dict[Path, Future[None]] = {}
        self._has_warned = self._has_dropped = False

    @property
    def being_deleted(self) -> set[Path]:
        """The checkpoints that are still there only because their deletion has not ended."""
        self._deletions = {folder: deletion for folder, deletion in self._deletions.items() if not deletion.done()}
        return set(self._deletions)

    def finish(self) -> None:
        """Wait until everything is deleted."""
        wait(self._deletions.values())

    def enforce(self, state: SweepState, in_use: Iterable[Path]) -> bool:
        """Have checkpoints deleted until the rest fits.

        Returns:
            Whether anything was deleted since the last call; then trials may name checkpoints that are gone.
        """
        has_dropped, self._has_dropped = self._has_dropped, False
        if self._limit is None:
            return has_dropped
        being_deleted = self.being_deleted
        # People put other folders beside those of the trials, such as copies of them.
        sizes = {
            folder: _size_of(folder)
            for folder in self._folder.glob("trial-*/checkpoint_*")
            if number_in_name(folder.parent.name) in state.trials and folder not in being_deleted
        }
        total = sum(sizes.values())
        if total <= self._limit:
            return has_dropped
        values = {self._folder / saved.place: saved.value for t in state.trials.values() for saved in t.checkpoints}
        protected, resumable = self._protected_and_resumable(state, set(sizes))
        protected |= set(in_use)

        def order(folder: Path) -> tuple[bool, float, Path]:
            value = values.get(folder, math.nan)  # what no trial knows, which a crash has left, goes first
            score = state.objective.score(value) if math.isfinite(value) else -math.inf
            return folder in resumable, score, folder

        for folder in sorted(set(sizes) - protected, key=order):
            self._deletions[folder] = self._delete(folder)
            total -= sizes[folder]
            if total <= self._limit:
                break
        if total > self._limit and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "--checkpoint-budget: the checkpoints that are still needed take %s, more than the %s allowed; they "
                "stay, and the sweep continues",
                ByteSize(total).human_readable(decimal=True), ByteSize(self._limit).human_readable(decimal=True),
            )  # fmt: skip
        return True

    def drop(self, state: SweepState, trial: TrialState) -> None:
        """Delete the checkpoints of a trial that waited to be promoted, and was not, unless it is the best."""
        if trial in state.front or trial is state.best_at_end:
            return
        for folder in (self._folder / saved.place for saved in trial.checkpoints):
            self._deletions[folder] = self._delete(folder)
        self._has_dropped = True

    def _protected_and_resumable(self, state: SweepState, folders: set[Path]) -> tuple[set[Path], set[Path]]:
        """Return the checkpoints that must stay, and those that let trials continue that wait."""
        protected, resumable = set[Path](), set[Path]()
        for trial in state.open_trials.values():
            recorded = [self._folder / saved.place for saved in trial.checkpoints]
            unrecorded = {folder for folder in folders if folder.parent.name == trial.name}.difference(recorded)
            latest = [folder for folder in recorded if folder in folders][-N_KEPT_UNENDED:]
            protected |= unrecorded  # a checkpoint that is being written
            if trial.status == "paused":
                resumable.update(latest)
            else:
                protected.update(latest)
        best_checkpoints = [state.best_checkpoint(self._folder, state.searched)]
        best_checkpoints += [state.best_checkpoint(self._folder, [trial]) for trial in state.front]
        protected |= {self._folder / saved.place for saved in best_checkpoints if saved is not None}
        if state.best_at_end is not None and state.best_at_end.checkpoints:
            protected.add(self._folder / state.best_at_end.checkpoints[-1].place)
        return protected, resumable


def _size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder, 0 if there is none."""
    size = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):  # a file that is being written has its last name by now
                size += (Path(parent) / file).stat().st_size
    return size
