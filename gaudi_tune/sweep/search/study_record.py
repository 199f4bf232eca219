"""The study of a sweep, kept twice: in memory, to be read at once, and in a database, which a thread writes."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.exceptions import StorageInternalError
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.search_space import hyperparameter
from gaudi_tune.define.sweep_plan import STUDY_FILE
from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.record.events import Outcome
from gaudi_tune.sweep.search.sampler_view import ATTR_FAILURE, ATTR_NUMBER, ATTR_POINT, copy_attributes

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 1.0
"""Seconds to wait after the database could not be written: it was locked, or the disk was full."""
GIVE_UP_AFTER_S = 60.0
"""Seconds that the end of a sweep waits while nothing can be written to the database."""
WARN_EVERY_S = 10.0
"""Seconds from one warning that it waits to the next."""
STUDY_ITSELF = -1
"""Stands for the study itself among the numbers of its trials."""

OUTCOMES: dict[TrialState, Outcome] = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "stopped early",
    TrialState.FAIL: "failed",
}
"""The outcomes that a study's states mean; a trial in any other state has not ended."""

Change = Callable[[optuna.Study, int], None]
"""Changes a trial: takes a study, and the trial's id in its storage."""


def study_address(folder: Path) -> str:
    """Return the address of the study's database, which is in the sweep's folder."""
    return f"sqlite:///{folder / STUDY_FILE}"


def stored_trials(folder: Path) -> list[FrozenTrial]:
    """Return the trials that the study of a sweep has in its database; none if the database or the study is gone."""
    with suppress(SweepError):
        return trials_to_resume(folder)
    return []


def config_of_trial(folder: Path, number: int) -> dict[str, Any]:
    """Return the hyperparameters of a trial of the search of a sweep, for ``--baseline``.

    Raises:
        SweepError: The search has no such trial.
    """
    trials = {number_in_sweep(trial): trial for trial in stored_trials(folder)}
    if number not in trials:
        numbers = f"1 to {max(trials)}, without those that confirm" if trials else "none"
        raise SweepError(f"--baseline {folder.name}:{number}: its search has no such trial; it has {numbers}")
    return {hyperparameter(name): value for name, value in trials[number].params.items()}


def number_in_sweep(trial: FrozenTrial) -> int:
    """Return the number that a trial of a study has in its sweep."""
    return int(trial.user_attrs.get(ATTR_NUMBER, trial.number + 1))


def trial_summaries(
    trials: Sequence[FrozenTrial], objective: Objective, paused: Container[int] = ()
) -> list[dict[str, Any]]:
    """Return what a list shows of the trials of a study: how each ended, its best report, and its configuration.

    Args:
        trials: The trials of the study.
        objective: The objective by which a report is best.
        paused: Trials that wait, which the study does not know.
    """
    return [_trial_summary(trial, objective, is_paused=number_in_sweep(trial) in paused) for trial in trials]


def _trial_summary(trial: FrozenTrial, objective: Objective, *, is_paused: bool) -> dict[str, Any]:
    values = trial.intermediate_values
    best_step = max(values, key=lambda step: objective.score(values[step]), default=None)
    summary: dict[str, Any] = {
        "trial": number_in_sweep(trial),
        "status": OUTCOMES.get(trial.state, "paused" if is_paused else "interrupted"),
        "value": None if best_step is None else values[best_step],
    }
    if ATTR_POINT in trial.user_attrs:
        summary["point"] = list(trial.user_attrs[ATTR_POINT])
    if ATTR_FAILURE in trial.user_attrs:
        summary["why"] = str(trial.user_attrs[ATTR_FAILURE])
    summary["at"] = best_step
    summary["config"] = {hyperparameter(name): value for name, value in trial.params.items()}
    return summary


def count_trials(folder: Path) -> int:
    """Return how many trials the study of a sweep has in its database; 0 if the database or the study is gone."""
    if not (folder / STUDY_FILE).is_file():
        return 0
    with suppress(SQLAlchemyError):
        return internals.count_trials(study_address(folder), folder.name)
    return 0


def trials_to_resume(folder: Path) -> list[FrozenTrial]:
    """Return the trials of the study with which a sweep is resumed.

    Raises:
        SweepError: The database is gone, cannot be read, or lacks the study.
    """
    file = folder / STUDY_FILE
    fix = "put that file back from a backup, or start a new sweep under another name"
    if not file.is_file():
        raise SweepError(f"--resume {folder.name}: its study, {file}, is missing; {fix}")
    try:
        return optuna.load_study(study_name=folder.name, storage=study_address(folder)).get_trials(deepcopy=False)
    except (KeyError, SQLAlchemyError, StorageInternalError) as error:
        reason = str(error).strip().split("\n", maxsplit=1)[0]
        raise SweepError(f"--resume {folder.name}: its study, {file}, cannot be read ({reason}); {fix}") from error


class Unwritten(NamedTuple):
    """What the database does not have yet, for a snapshot."""

    trials: list[FrozenTrial]
    """The trials, by number, as they are in memory."""
    attributes: dict[str, Any]
    """What samplers keep in the study; empty if the database has it."""


class StudyRecord:
    """The study of a sweep. Every change is made in memory at once, and later in the database, in the same order.

    Reading and writing a trial in SQLite takes 10 to 60 ms, in which Tune's event loop would do nothing else.
    """

    def __init__(self, stored: optuna.Study, unwritten: Unwritten | None = None) -> None:
        """Read the database, and start the thread that writes to it.

        Args:
            stored: The study in the database. Nobody else adds trials to it while the sweep runs.
            unwritten: What the database did not have at the snapshot from which the sweep is resumed; it is written
                now.
        """
        self.stored = stored
        self.memory = optuna.create_study(directions=stored.directions, sampler=RandomSampler(seed=0))
        stored_trials = stored.get_trials(deepcopy=False)
        self._ids = {trial.number: internals.id_of(trial) for trial in stored_trials}  # in the database
        self._writes: queue.Queue[tuple[int, Callable[[], None]] | None] = queue.Queue()
        self._lock = threading.Lock()
        self._pending = Counter[int]()  # by trial, how many changes the database does not have
        self._add_failed = False  # a trial could not be added: those after it would get wrong numbers
        self._n_writes = 0
        trials = {trial.number: trial for trial in stored_trials}
        for trial in unwritten.trials if unwritten else ():
            if trial.number == len(trials):
                trials[trial.number] = trial
                self._put(trial.number, partial(self._add, trial.number, trial))
            elif trial.number in trials and _progress(trial) > _progress(trials[trial.number]):
                trials[trial.number] = trial
                self._put(trial.number, partial(self._bring_up, trial))
        self.memory.add_trials(trials.values())
        copy_attributes(stored, self.memory)
        for name, value in unwritten.attributes.items() if unwritten else ():
            internals.set_study_attribute(self.memory, name, value)
            self._put(STUDY_ITSELF, partial(internals.set_study_attribute, stored, name, value))
        threading.Thread(target=self._run, name="study", daemon=True).start()

    def trials(self) -> list[FrozenTrial]:
        """Return all trials by number; not to be changed."""
        return self.memory.get_trials(deepcopy=False)

    def trial(self, number: int) -> FrozenTrial | None:
        """Return the trial of this number, or None; not to be changed."""
        return internals.trial_with_id(self.memory, number)  # in memory, ids are numbers

    @property
    def in_database(self) -> int:
        """How many trials the database has at least."""
        return len(self._ids)

    def add(self, trial: FrozenTrial) -> int:
        """Add a trial and return its number."""
        number = len(self.trials())
        self.memory.add_trial(trial)
        self._put(number, partial(self._add, number, trial))
        return number

    def change(self, number: int, change: Change) -> None:
        """Make a change to a trial, now in memory and later in the database."""
        change(self.memory, number)
        self._put(number, lambda: change(self.stored, self._ids[number]))

    def keep_attributes_of(self, study: optuna.Study) -> None:
        """Take over what a sampler has kept in the study that it sees."""
        if internals.study_attributes(study) != internals.study_attributes(self.memory):
            copy_attributes(study, self.memory)
            self._put(STUDY_ITSELF, lambda: copy_attributes(study, self.stored))

    def unwritten(self) -> Unwritten:
        """Return what the database does not have yet."""
        with self._lock:
            numbers = sorted(number for number, changes in self._pending.items() if changes)
        trials = self.trials()
        attributes = dict(internals.study_attributes(self.memory)) if STUDY_ITSELF in numbers else {}
        return Unwritten([trials[number] for number in numbers if number != STUDY_ITSELF], attributes)

    def flush(self) -> None:
        """Wait until the database has everything, or nothing has been written for :data:`GIVE_UP_AFTER_S`."""
        n_writes, last_write = self._n_writes, time.monotonic()
        warned_at = last_write
        while n_unwritten := self._writes.unfinished_tasks:
            moment = time.monotonic()
            if self._n_writes != n_writes:
                n_writes, last_write = self._n_writes, moment
            if moment - last_write >= GIVE_UP_AFTER_S:
                return
            if moment - warned_at >= WARN_EVERY_S:
                warned_at = moment
                logger.warning(
                    "the study's database does not have everything yet: %d changes are to be written", n_unwritten
                )
            time.sleep(0.001)

    def close(self) -> int:
        """Wait as :meth:`flush` does, and end the thread, which closes the database.

        Returns:
            How many trials the database does not have in full.
        """
        self._writes.put(None)
        self.flush()
        trials, attributes = self.unwritten()
        return len(trials) or bool(attributes)

    def _put(self, number: int, write: Callable[[], None]) -> None:
        """Leave a change of a trial, or of the study, to the thread."""
        with self._lock:
            self._pending[number] += 1
        self._writes.put((number, write))

    def _add(self, number: int, trial: FrozenTrial) -> None:
        self._ids[number] = internals.add_trial(self.stored, trial)

    def _bring_up(self, trial: FrozenTrial) -> None:
        internals.update_trial(self.stored, self._ids[trial.number], trial)

    def _run(self) -> None:
        """Write what is put into the queue, until that is None."""
        while True:
            item = self._writes.get()
            if item is None:
                internals.close(self.stored)
                self._writes.task_done()
                return
            number, write = item
            self._write(number, write)
            self._writes.task_done()

    def _write(self, number: int, write: Callable[[], None]) -> None:
        """Write to the database, however long that takes; a change that fails for good stays unwritten."""
        while True:
            is_new = number != STUDY_ITSELF and number not in self._ids
            if is_new and self._add_failed:
                return
            try:
                write()
            except (OperationalError, StorageInternalError, OSError) as error:  # the database is away for a while
                logger.warning("the study's database cannot be written (%s); trying again", error)
                time.sleep(RETRY_AFTER_S)
                continue
            except Exception:  # if the thread ended, all later changes would be lost, too
                logger.exception("not written to the study's database")
                self._add_failed = self._add_failed or is_new
                return
            with self._lock:
                self._pending[number] -= 1
                self._n_writes += 1
            return


def _progress(trial: FrozenTrial) -> tuple[bool, int, int]:
    """Return what grows as a trial continues: the database may be ahead of a snapshot, or behind it."""
    return trial.state.is_finished(), len(trial.intermediate_values), len(trial.user_attrs)
