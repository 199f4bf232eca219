"""The study of a sweep, kept twice: in memory, to be read at once, and in a database, which a thread writes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import optuna
from optuna.exceptions import StorageInternalError
from optuna.samplers import RandomSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as StudyState
from sqlalchemy.exc import SQLAlchemyError

from gaudi_tune.base.errors import first_line
from gaudi_tune.base.words import counted
from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.record.state_log import TRIALS
from gaudi_tune.sweep.search.sampler_view import copy_attributes
from gaudi_tune.sweep.search.study_trial import from_snapshot, number_in_sweep, snapshot

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 1.0
"""Seconds to wait after the database could not be written: it was locked, or the disk was full."""
GIVE_UP_AFTER_S = 60.0
"""Seconds that the end of a sweep waits while nothing can be written to the database."""
WARN_EVERY_S = 10.0
"""Seconds from one warning that it waits to the next."""
WRITE_EVERY_S = 0.5
"""Seconds from one write to the database to the next: what changes meanwhile is written together."""
MAX_AT_ONCE = 500
"""Most trials of a transaction, in which the database is locked for others."""
MAX_BEGINS = 3
"""How often the database is written from the beginning, because it was damaged or gone."""
DATABASE_ERRORS = (SQLAlchemyError, StorageInternalError, OSError)
PARTS = ("state", "values", "params", "intermediate_values", "user_attrs", "system_attrs")
"""What the database must have of a trial."""


class KeptStudy(NamedTuple):
    """The study as the log of a sweep has it."""

    trials: list[FrozenTrial]
    """The trials, by number."""
    attributes: dict[str, Any]
    """What samplers keep in the study."""

    @classmethod
    def from_snapshot(cls, part: Mapping[str, Any]) -> KeptStudy:
        """Return the study of :meth:`StudyRecord.snapshot` with all trials."""
        return cls([from_snapshot(trial) for _, trial in sorted(part[TRIALS].items())], part["attributes"])


def study_in_memory(logged_study: KeptStudy, directions: Sequence[Literal["minimize", "maximize"]]) -> optuna.Study:
    """Return a study in memory with these trials and attributes."""
    study = optuna.create_study(directions=list(directions), sampler=RandomSampler(seed=0))
    study.add_trials(logged_study.trials)
    for attribute, value in logged_study.attributes.items():
        internals.set_study_attribute(study, attribute, value)
    return study


class StudyRecord:
    """The study of a sweep, in memory, and a thread that brings its database up to it.

    Nothing waits for the database while the sweep runs. The thread writes all trials that have changed since its last
    write, as they are then, in one transaction. If the database turns out to be damaged or gone, all is written again.
    """

    def __init__(
        self,
        storage: str | BaseStorage,
        name: str,
        directions: Sequence[Literal["minimize", "maximize"]],
        logged_study: KeptStudy | None = None,
    ) -> None:
        """Read the database, and start the thread that writes to it.

        Args:
            storage: The database's address, or Optuna's own object.
            name: The name of the study. Nobody else adds trials to it while the sweep runs.
            directions: Whether each objective is minimized or maximized.
            logged_study: The study in the log from which the sweep is resumed. The database may have more trials, which
                were proposed later; otherwise the log counts.
        """
        self._storage, self._name, self._directions = storage, name, list(directions)
        self._lock = threading.Lock()
        self._ids: dict[int, int] = {}  # by number, the ids of the trials that the database has
        self._stored_trials: dict[int, FrozenTrial] = {}  # these trials, as the database has them
        self._unwritten = set[int]()  # numbers of trials that the database does not have as they are
        self._refused_numbers = set[int]()  # numbers of trials that cannot be written
        self._attributes_are_unwritten = False
        self._is_damaged, self._begins_left = False, MAX_BEGINS
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._is_idle, self._is_closing = threading.Event(), threading.Event()
        self._last_write = time.monotonic()
        self.unlogged = set[int]()
        """Numbers of the trials that have changed since the log was written."""

        stored = self._open(may_begin_again=logged_study is not None)
        trials = logged_study.trials + stored[len(logged_study.trials) :] if logged_study else stored
        attributes = logged_study.attributes if logged_study else internals.study_attributes(self.stored)
        self.memory = study_in_memory(KeptStudy(trials, dict(attributes)), self._directions)
        self.unlogged.update(range(len(trials)))
        self._find_unwritten()
        threading.Thread(target=self._run, name="study", daemon=True).start()
        self._wake.set()

    def trials(self) -> list[FrozenTrial]:
        """Return all trials by number; not to be changed."""
        return self.memory.get_trials(deepcopy=False)

    def add(self, trial: FrozenTrial) -> int:
        """Add a trial and return its number."""
        number = len(self.trials())
        self.memory.add_trial(trial)
        self._note(number)
        return number

    def replace(self, trial: FrozenTrial) -> None:
        """Put ``trial`` in the place of the trial with its number."""
        internals.replace_trial(self.memory, trial)
        self._note(trial.number)

    def keep_attributes_of(self, study: optuna.Study) -> None:
        """Take over what a sampler has kept in the study that it sees."""
        if internals.study_attributes(study) != internals.study_attributes(self.memory):
            copy_attributes(study, self.memory)
            with self._lock:
                self._attributes_are_unwritten = True
            self._wake_thread()

    def snapshot(self, *, everything: bool) -> dict[str, Any]:
        """Return the study's part of the log, with all trials, or with those that have changed."""
        trials = self.trials()
        numbers = range(len(trials)) if everything else sorted(self.unlogged)
        attributes = dict(internals.study_attributes(self.memory))
        return {"attributes": attributes, TRIALS: {number: snapshot(trials[number]) for number in numbers}}

    def flush(self) -> None:
        """Wait until the database has everything, or nothing has been written for :data:`GIVE_UP_AFTER_S`."""
        start = warned_at = time.monotonic()
        self._hurry.set()
        while not self._is_idle.wait(0.01):
            moment = time.monotonic()
            if moment - max(start, self._last_write) >= GIVE_UP_AFTER_S:
                return
            if moment - warned_at >= WARN_EVERY_S:
                warned_at = moment
                logger.warning(
                    "the study's database does not have everything yet: %s to be written",
                    counted(len(self._unwritten), "trial"),
                )

    def close(self) -> int:
        """Have the database checked and completed, and end the thread. This waits as :meth:`flush` does.

        Returns:
            How many trials the database does not have in full.
        """
        self._is_closing.set()
        self._wake_thread()
        self.flush()
        with self._lock:
            return len(self._unwritten | self._refused_numbers) or int(self._attributes_are_unwritten)

    def _note(self, number: int) -> None:
        self.unlogged.add(number)
        with self._lock:
            self._unwritten.add(number)
        self._wake_thread()

    def _wake_thread(self) -> None:
        self._is_idle.clear()
        self._wake.set()

    # The database.

    def _open(self, *, may_begin_again: bool) -> list[FrozenTrial]:
        """Open the study in its database, or create it there, and return its trials.

        Args:
            may_begin_again: Whether a damaged database is set aside, and another one begun.
        """
        start = time.monotonic()
        while True:
            try:
                stored = self._connect()
                break
            except DATABASE_ERRORS as error:
                if internals.is_damage(error):
                    if not may_begin_again:
                        raise
                    self._set_aside(error)
                    may_begin_again = False  # a new one that is damaged at once
                elif not self._file.is_file() or time.monotonic() - start > GIVE_UP_AFTER_S:
                    raise  # there is no file that another process may lock
                else:
                    logger.warning("the study's database cannot be read (%s); trying again", first_line(error))
                    time.sleep(RETRY_AFTER_S)
        self._ids = {trial.number: internals.id_of(trial) for trial in stored}
        self._stored_trials = {trial.number: trial for trial in stored}
        return stored

    def _connect(self) -> list[FrozenTrial]:
        self.stored = optuna.create_study(
            storage=self._storage,
            study_name=self._name,
            sampler=RandomSampler(seed=0),  # never asked
            directions=self._directions,
            load_if_exists=True,
        )
        return self.stored.get_trials(deepcopy=False)

    @property
    def _file(self) -> Path:
        return Path(str(self._storage).removeprefix("sqlite:///"))

    def _set_aside(self, error: Exception) -> None:
        """Move a damaged database away, so that another is begun in its place."""
        file = self._file
        damaged = file.with_name(f"{file.name}.damaged")
        logger.warning(
            "the study's database is damaged (%s): it is %s now, and the study is written again",
            first_line(error),
            damaged,
        )
        file.replace(damaged)
        for suffix in ("-journal", "-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)

    def _find_unwritten(self) -> None:
        """Compare the database with the study in memory."""
        with self._lock:
            trials = self.trials()
            self._unwritten = {
                trial.number for trial in trials if not _is_current(self._stored_trials.get(trial.number), trial)
            }
            stored_attributes = internals.study_attributes(self.stored)
            self._attributes_are_unwritten = internals.study_attributes(self.memory) != stored_attributes

    # The thread.

    def _run(self) -> None:
        """Write what has changed, until the study is closed and its database has everything."""
        while True:
            self._wake.wait()
            self._wake.clear()
            try:
                if self._is_damaged:
                    self._begin_again()
                self._write()
                if self._is_closing.is_set() and self._has_closed():
                    return
            except DATABASE_ERRORS as error:
                self._wake.set()
                self._wait_after(error)
                continue
            with self._lock:
                if not self._unwritten - self._refused_numbers and not self._attributes_are_unwritten:
                    self._is_idle.set()
            self._hurry.wait(WRITE_EVERY_S)
            self._hurry.clear()

    def _wait_after(self, error: Exception) -> None:
        """Note an error of the database, and wait a moment if it may go away."""
        if internals.is_damage(error) and self._begins_left:
            self._is_damaged = True
            return
        logger.warning("the study's database cannot be written (%s); trying again", first_line(error))
        internals.close(self.stored)  # a connection to a file that was deleted can never write again
        time.sleep(RETRY_AFTER_S)

    def _begin_again(self) -> None:
        """Open the database, perhaps another one, and find out what it does not have."""
        self._begins_left -= 1
        internals.close(self.stored)
        self._open(may_begin_again=True)
        self._find_unwritten()
        self._is_damaged = False

    def _has_closed(self) -> bool:
        """Close the database if it has everything. Otherwise see to it that the rest is written."""
        with self._lock:
            if self._attributes_are_unwritten:  # they changed after the last write
                self._wake.set()
                return False
        progress = internals.progress_by_id(self.stored)
        trials = self.trials()
        missing = {
            trial.number
            for trial in trials
            if progress is None or progress.get(self._ids.get(trial.number, -1)) != _progress(trial)
        }
        missing -= self._refused_numbers
        if missing and self._begins_left:
            self._is_damaged = True
            self._wake.set()
            return False
        with self._lock:
            self._unwritten = missing
        internals.close(self.stored)
        self._is_idle.set()
        return True

    def _write(self) -> None:
        """Write what has changed, :data:`MAX_AT_ONCE` trials in a transaction."""
        with self._lock:
            writes_attributes, self._attributes_are_unwritten = self._attributes_are_unwritten, False
        if writes_attributes:
            is_written = False
            try:
                copy_attributes(self.memory, self.stored)
                is_written = True
            finally:
                with self._lock:
                    self._attributes_are_unwritten |= not is_written
        while True:
            trials = self.trials()
            with self._lock:
                numbers = sorted(self._unwritten - self._refused_numbers)[:MAX_AT_ONCE]
            if not numbers:
                return
            self._write_together([trials[number] for number in numbers])

    def _write_together(self, trials: Sequence[FrozenTrial]) -> None:
        try:
            new_ids = internals.write_trials(self.stored, trials, self._ids, self._stored_trials)
        except DATABASE_ERRORS:
            raise
        except Exception:  # if the thread ended, all later changes would be lost, too
            if len(trials) > 1:
                for trial in trials:
                    self._write_together([trial])
            else:
                logger.exception("trial %d is not written to the study's database", number_in_sweep(trials[0]))
                self._refused_numbers.add(trials[0].number)
            return
        self._ids |= new_ids
        self._last_write = time.monotonic()
        current = self.trials()
        with self._lock:
            for trial in trials:
                self._stored_trials[trial.number] = trial
                if current[trial.number] is trial:  # it may have changed meanwhile
                    self._unwritten.discard(trial.number)


def _is_current(stored: FrozenTrial | None, trial: FrozenTrial) -> bool:
    """Whether the database has a trial as it is in memory; the times do not count."""
    return stored is not None and all(getattr(stored, part) == getattr(trial, part) for part in PARTS)


def _progress(trial: FrozenTrial) -> tuple[StudyState, int]:
    return trial.state, len(trial.intermediate_values)
