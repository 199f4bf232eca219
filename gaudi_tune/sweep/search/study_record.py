"""The study of a sweep twice: in memory, to be read at once, and in its database, which a separate thread writes."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.search_space import hyperparameter
from gaudi_tune.define.sweep_plan import STUDY_FILE
from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.record.events import Outcome
from gaudi_tune.sweep.search.surrogate import ATTR_FAILURE, ATTR_NUMBER, ATTR_POINT, carry_attributes

logger = logging.getLogger(__name__)

TRY_AGAIN_AFTER_S = 1.0
"""How long to wait after the database could not be written: it was locked, or the disk was full."""
FLUSH_WITHIN_S = 10.0
"""How long a snapshot waits for the database; if it takes longer, that snapshot is not kept."""

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


def in_brief(trials: Sequence[FrozenTrial], mode: str, paused: Container[int] = ()) -> list[dict[str, Any]]:
    """Return what a list shows of the trials of a study: how each ended, its best report, and its configuration.

    The study does not know which trials are ``paused``.
    """
    best_of: Callable[..., int | None] = min if mode == "min" else max
    found = []
    for trial in trials:
        values = trial.intermediate_values
        step = best_of(values, key=values.__getitem__, default=None)
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


class StudyRecord:
    """Reading and writing a trial in SQLite takes 10 to 60 ms, in which Tune's event loop would do nothing else."""

    def __init__(self, stored: optuna.Study) -> None:
        """Read what is there, and start the thread.

        Args:
            stored: In the database. Nobody else adds trials to it while the sweep runs.
        """
        self.stored = stored
        self.memory = optuna.create_study(directions=stored.directions, sampler=RandomSampler(seed=0))
        trials = stored.get_trials(deepcopy=False)
        self.memory.add_trials(trials)
        carry_attributes(stored, self.memory)
        self._ids = {trial.number: internals.id_of(trial) for trial in trials}  # in the database
        self._writes: queue.Queue[Callable[[], None] | None] = queue.Queue()
        threading.Thread(target=self._run, name="study", daemon=True).start()

    def trials(self) -> list[FrozenTrial]:
        """Return all trials by number; not to be changed."""
        return self.memory.get_trials(deepcopy=False)

    def trial(self, number: int) -> FrozenTrial | None:
        """Return a trial, None if there is none of this number; not to be changed."""
        return internals.trial_with_id(self.memory, number)  # in memory, ids are numbers

    def add(self, trial: FrozenTrial) -> int:
        """Add a trial and return its number."""
        number = len(self.trials())
        self.memory.add_trial(trial)

        def write() -> None:
            self._ids[number] = internals.add_trial(self.stored, trial)

        self._writes.put(write)
        return number

    def change(self, number: int, change: Change) -> None:
        """Change a trial."""
        change(self.memory, number)
        self._writes.put(lambda: change(self.stored, self._ids[number]))

    def keep_attributes_of(self, model: optuna.Study) -> None:
        """Take over what a sampler has kept in the study that it proposes from."""
        if internals.study_attributes(model) != internals.study_attributes(self.memory):
            carry_attributes(model, self.memory)
            self._writes.put(lambda: carry_attributes(model, self.stored))

    def flush(self) -> bool:
        """Wait until the database has everything, for as long as :data:`FLUSH_WITHIN_S` allows; whether it has."""
        until = time.monotonic() + FLUSH_WITHIN_S
        while self._writes.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.001)
        return not self._writes.unfinished_tasks and len(self._ids) == len(self.trials())

    def close(self) -> None:
        """End the thread, and close the database, once that has everything; nothing is waited for."""
        self._writes.put(None)

    def _run(self) -> None:
        while (write := self._writes.get()) is not None:
            while True:
                try:
                    write()
                except (OperationalError, StorageInternalError, OSError) as error:  # the database is away for a while
                    logger.warning("the study's database cannot be written (%s); trying again", error)
                    time.sleep(TRY_AGAIN_AFTER_S)
                    continue
                except Exception:  # a thread that ends would lose all that comes later, too
                    logger.exception("not written to the study's database")
                break
            self._writes.task_done()
        internals.close(self.stored)
        self._writes.task_done()
