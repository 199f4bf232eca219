"""The study of a sweep twice: in memory, to be read at once, and in its database, which a separate thread writes."""

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
from gaudi_tune.sweep.search.surrogate import ATTR_FAILURE, ATTR_NUMBER, ATTR_POINT, carry_attributes

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 1.0
"""How long to wait after the database could not be written: it was locked, or the disk was full."""
GIVE_UP_AFTER_S = 60.0
"""How long the end of a sweep waits while the database takes nothing."""
SAY_EVERY_S = 10.0
"""How often it says so."""
OF_STUDY = -1
"""Stands for the study itself among the numbers of its trials."""

OUTCOMES: dict[TrialState, Outcome] = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "stopped early",
    TrialState.FAIL: "failed",
}
"""What a study's states are called here; any other is a trial that has not ended."""

Change = Callable[[optuna.Study, int], None]
"""Changes a trial: takes a study, and the trial's id in its storage."""


def study_address(folder: Path) -> str:
    """Return the address of the study's database, which is in the sweep's folder."""
    return f"sqlite:///{folder / STUDY_FILE}"


def stored_trials(folder: Path) -> list[FrozenTrial]:
    """Return the trials that the study of a sweep has in its database, none if that or the study is gone."""
    with suppress(SweepError):
        return trials_to_resume(folder)
    return []


def config_of(folder: Path, number: int) -> dict[str, Any]:
    """Return the hyperparameters of a trial of the search of a sweep; a SweepError of ``--baseline`` if it has none."""
    trials = {number_of(trial): trial for trial in stored_trials(folder)}
    if number not in trials:
        raise SweepError(
            f"--baseline {folder.name}:{number}: its search has no such trial; it has "
            f"{f'1 to {max(trials)}, without those that confirm' if trials else 'none'}"
        )
    return {hyperparameter(name): value for name, value in trials[number].params.items()}


def number_of(trial: FrozenTrial) -> int:
    """Return the number in its sweep of a trial of a study."""
    return int(trial.user_attrs.get(ATTR_NUMBER, trial.number + 1))


def in_brief(trials: Sequence[FrozenTrial], objective: Objective, paused: Container[int] = ()) -> list[dict[str, Any]]:
    """Return what a list shows of the trials of a study: how each ended, its best report, and its configuration.

    The study does not know which trials are ``paused``.
    """
    found = []
    for trial in trials:
        values = trial.intermediate_values
        step = max(values, key=lambda at: objective.score(values[at]), default=None)
        found.append(
            {
                "trial": number_of(trial),
                "status": OUTCOMES.get(trial.state, "paused" if number_of(trial) in paused else "interrupted"),
                "value": None if step is None else values[step],
                **({"point": list(trial.user_attrs[ATTR_POINT])} if ATTR_POINT in trial.user_attrs else {}),
                **({"why": str(trial.user_attrs[ATTR_FAILURE])} if ATTR_FAILURE in trial.user_attrs else {}),
                "at": step,
                "config": {hyperparameter(name): value for name, value in trial.params.items()},
            }
        )
    return found


def count_trials(folder: Path) -> int:
    """Return how many trials the study of a sweep has in its database, 0 if that or the study is gone."""
    with suppress(SQLAlchemyError):
        return internals.count_trials(study_address(folder), folder.name) if (folder / STUDY_FILE).is_file() else 0
    return 0


def trials_to_resume(folder: Path) -> list[FrozenTrial]:
    """Return the trials of a study with which a sweep is to go on.

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
        why = str(error).strip().split("\n", maxsplit=1)[0]
        raise SweepError(f"--resume {folder.name}: its study, {file}, cannot be read ({why}); {fix}") from error


class Unwritten(NamedTuple):
    """What the database does not have yet, for a snapshot."""

    trials: list[FrozenTrial]
    """By number, as they are in memory."""
    attributes: dict[str, Any]
    """What samplers keep in the study; empty if the database has it."""


class StudyRecord:
    """Reading and writing a trial in SQLite takes 10 to 60 ms, in which Tune's event loop would do nothing else."""

    def __init__(self, stored: optuna.Study, unwritten: Unwritten | None = None) -> None:
        """Read what is there, and start the thread.

        Args:
            stored: In the database. Nobody else adds trials to it while the sweep runs.
            unwritten: What the database did not have at a snapshot from which the sweep goes on; it is written now.
        """
        self.stored = stored
        self.memory = optuna.create_study(directions=stored.directions, sampler=RandomSampler(seed=0))
        trials = stored.get_trials(deepcopy=False)
        self._ids = {trial.number: internals.id_of(trial) for trial in trials}  # in the database
        self._writes: queue.Queue[tuple[int, Callable[[], None]] | None] = queue.Queue()
        self._lock, self._waiting = threading.Lock(), Counter[int]()  # by trial, how much the database does not have
        self._add_failed = False  # for good: what comes after that trial would get other numbers
        self._written = 0
        known = {trial.number: trial for trial in trials}
        for trial in unwritten.trials if unwritten else ():
            if trial.number == len(known):
                known[trial.number] = trial
                self._put(trial.number, partial(self._add, trial.number, trial))
            elif trial.number in known and _progress(trial) > _progress(known[trial.number]):
                known[trial.number] = trial
                self._put(trial.number, partial(self._bring_up, trial))
        self.memory.add_trials(known.values())
        carry_attributes(stored, self.memory)
        for name, value in unwritten.attributes.items() if unwritten else ():
            internals.set_study_attribute(self.memory, name, value)
            self._put(OF_STUDY, partial(internals.set_study_attribute, stored, name, value))
        threading.Thread(target=self._run, name="study", daemon=True).start()

    def trials(self) -> list[FrozenTrial]:
        """Return all trials by number; not to be changed."""
        return self.memory.get_trials(deepcopy=False)

    def trial(self, number: int) -> FrozenTrial | None:
        """Return a trial, None if there is none of this number; not to be changed."""
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
        """Change a trial."""
        change(self.memory, number)
        self._put(number, lambda: change(self.stored, self._ids[number]))

    def keep_attributes_of(self, model: optuna.Study) -> None:
        """Take over what a sampler has kept in the study that it proposes from."""
        if internals.study_attributes(model) != internals.study_attributes(self.memory):
            carry_attributes(model, self.memory)
            self._put(OF_STUDY, lambda: carry_attributes(model, self.stored))

    def unwritten(self) -> Unwritten:
        """Return what the database does not have yet."""
        with self._lock:
            waiting = sorted(number for number, writes in self._waiting.items() if writes)
        trials = self.trials()
        study_ranges = dict(internals.study_attributes(self.memory)) if OF_STUDY in waiting else {}
        return Unwritten([trials[number] for number in waiting if number != OF_STUDY], study_ranges)

    def flush(self) -> None:
        """Wait until the database has everything. While nothing is written, for :data:`GIVE_UP_AFTER_S` at most."""
        written, since = self._written, time.monotonic()
        said = since
        while left := self._writes.unfinished_tasks:
            now = time.monotonic()
            if self._written != written:
                written, since = self._written, now
            if now - since >= GIVE_UP_AFTER_S:
                return
            if now - said >= SAY_EVERY_S:
                said = now
                logger.warning("the study's database does not have everything yet: %d changes are to be written", left)
            time.sleep(0.001)

    def close(self) -> int:
        """Wait as :meth:`flush` does, and end the thread, which closes the database.

        Returns:
            How many trials the database does not have in full.
        """
        self._writes.put(None)
        self.flush()
        trials, study_ranges = self.unwritten()
        return len(trials) or bool(study_ranges)

    def _put(self, number: int, write: Callable[[], None]) -> None:
        with self._lock:
            self._waiting[number] += 1
        self._writes.put((number, write))

    def _add(self, number: int, trial: FrozenTrial) -> None:
        self._ids[number] = internals.add_trial(self.stored, trial)

    def _bring_up(self, trial: FrozenTrial) -> None:
        internals.update_trial(self.stored, self._ids[trial.number], trial)

    def _run(self) -> None:
        while (to_write := self._writes.get()) is not None:
            self._write(*to_write)
            self._writes.task_done()
        internals.close(self.stored)
        self._writes.task_done()

    def _write(self, number: int, write: Callable[[], None]) -> None:
        """Write to the database, however long that takes; what fails for good counts as unwritten."""
        while True:
            is_new = number != OF_STUDY and number not in self._ids
            if is_new and self._add_failed:
                return
            try:
                write()
            except (OperationalError, StorageInternalError, OSError) as error:  # the database is away for a while
                logger.warning("the study's database cannot be written (%s); trying again", error)
                time.sleep(RETRY_AFTER_S)
                continue
            except Exception:  # a thread that ends would lose all that comes later, too
                logger.exception("not written to the study's database")
                self._add_failed = self._add_failed or is_new
                return
            with self._lock:
                self._waiting[number] -= 1
                self._written += 1
            return


def _progress(trial: FrozenTrial) -> tuple[bool, int, int]:
    """Return what becomes more as a trial goes on: the database may be ahead of a snapshot, or behind it."""
    return trial.state.is_finished(), len(trial.intermediate_values), len(trial.user_attrs)
