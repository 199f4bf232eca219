"""Which reports are worth a checkpoint, and which checkpoints go when all of them take too much room."""

from __future__ import annotations

import logging
import math
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import ByteSize

from gaudi_tune.sweep.record.events import BY_HAND
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState, number_in_name

logger = logging.getLogger(__name__)

KEPT_OF_UNFINISHED = 2
"""Checkpoints kept of a trial that has not ended: after a crash, a snapshot may name the one before the last."""


def wants_checkpoint(state: SweepState, trial: TrialState, every_s: float) -> bool:
    """Return whether a trial should write a checkpoint of the report that ``state`` has just applied.

    It should if the report is the best of the sweep so far (with several objectives: on its front), if the trial ends
    now as the best of those that have ended, if a person stops it, if it has trained ``every_s`` seconds without one,
    and if the sweep ends early. So the best trial has one, whether its best or its last value counts, no trial loses
    more than a while's work, and most trials that are stopped early never write one. A trial that pauses has one
    anyway, which Tune asks for.
    """
    ends = trial.decision.verdict not in ("continue", "pause")
    if trial.decision == BY_HAND:
        return True
    if not ends and (state.ending is not None or time.monotonic() - trial.safe_since >= every_s):
        return True
    if trial.value is None:
        return False
    at_end = state.best_at_end.value if state.best_at_end is not None else None
    # A tie leads, too: the best by another rule, such as the lower number, then has a checkpoint.
    return state.leads(trial) or (ends and (at_end is None or not state.objective.better(at_end, than=trial.value)))


class CheckpointBudget:
    """Deletes the checkpoints of trials that waited in vain, and others when all of them take more than they may,
    the worst first.

    What stays in any case: the checkpoints of the trials that are best by their best (with several objectives: of all
    on the front) and by their last value, the last two of a trial that trains, and what is in use. Those of trials that
    wait go after all others. A trial that goes on, or that a snapshot sends back to a checkpoint that is gone, starts
    again from an older one, or from its beginning.
    """

    def __init__(self, folder: Path, limit: int | None) -> None:
        """Keep the checkpoints of the sweep in ``folder`` within so many bytes on disk; None for no limit."""
        self._folder, self._limit = folder, limit
        self._warned = self._dropped = False

    def keep(self, state: SweepState, in_use: Iterable[Path]) -> bool:
        """Delete what has to go and no trial may go on from at any time; whether anything went since the last time."""
        dropped, self._dropped = self._dropped, False
        if self._limit is None:
            return dropped
        # People put other folders beside those of the trials, such as copies of them.
        found = self._folder.glob("trial-*/checkpoint_*")
        sizes = {place: _size_of(place) for place in found if number_in_name(place.parent.name) in state.trials}
        taken = sum(sizes.values())
        if taken <= self._limit:
            return dropped
        values = {self._folder / saved.place: saved.value for t in state.trials.values() for saved in t.checkpoints}
        needed, of_waiting = self._needed(state, set(sizes))
        needed |= set(in_use)

        def order(place: Path) -> tuple[bool, float, Path]:
            value = values.get(place, math.nan)  # what no trial knows, which a crash has left, goes first
            score = state.objective.score(value) if math.isfinite(value) else -math.inf
            return place in of_waiting, score, place

        for place in sorted(set(sizes) - needed, key=order):
            shutil.rmtree(place, ignore_errors=True)
            taken += _size_of(place) - sizes[place]
            if taken <= self._limit:
                break
        if taken > self._limit and not self._warned:
            self._warned = True
            logger.warning(
                "--checkpoint-budget: the checkpoints that are still needed take %s, more than the %s allowed; they "
                "stay, and the sweep continues",
                ByteSize(taken).human_readable(decimal=True), ByteSize(self._limit).human_readable(decimal=True),
            )  # fmt: skip
        return True

    def drop(self, state: SweepState, trial: TrialState) -> None:
        """Delete the checkpoints of a trial that waited to be promoted, and was not, unless it is the best."""
        if trial in state.front or trial is state.best_at_end:
            return
        for saved in trial.checkpoints:
            shutil.rmtree(self._folder / saved.place, ignore_errors=True)
        self._dropped = True

    def _needed(self, state: SweepState, there: set[Path]) -> tuple[set[Path], set[Path]]:
        """Return the checkpoints that stay in any case, and those from which trials go on that wait."""
        needed, of_waiting = set[Path](), set[Path]()
        for trial in state.unended.values():
            known = {self._folder / saved.place for saved in trial.checkpoints}
            needed |= {place for place in there if place.parent.name == trial.name} - known  # being written
            latest = sorted(there & known)[-KEPT_OF_UNFINISHED:]
            (of_waiting if trial.status == "paused" else needed).update(latest)
        best = [state.best_checkpoint(self._folder, state.searched)]
        best += [state.best_checkpoint(self._folder, [trial]) for trial in state.front]
        needed |= {self._folder / saved.place for saved in best if saved is not None}
        if state.best_at_end is not None and state.best_at_end.checkpoints:
            needed.add(self._folder / state.best_at_end.checkpoints[-1].place)
        return needed, of_waiting


def _size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder, 0 if there is none."""
    size = 0
    for inside, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):  # it is being written, and has its last name by now
                size += (Path(inside) / file).stat().st_size
    return size
