"""``optuna.log``: the study for Optuna's own tools, such as its dashboard. Nothing of a sweep reads it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import RandomSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial
from typing_extensions import override

from gaudi_tune.sweep.search.sampler_view import ATTR_NUMBER
from gaudi_tune.sweep.search.study_trial import number_in_sweep

logger = logging.getLogger(__name__)


class StudyFile:
    """Writes trials to the file once they have ended, in this order. Each process begins a new file."""

    def __init__(self, file: Path, name: str) -> None:
        """Prepare only. ``name`` is that of the study."""
        self._file, self._name = file, name
        self._study: optuna.Study | None = None
        self._numbers_in_file = set[int]()
        """Numbers of the trials that the file has."""

    def write(self, study: optuna.Study) -> None:
        """Append what has ended in a study since the last call. What the disk does not take comes with the next one."""
        try:
            if self._study is None:
                self._numbers_in_file.clear()
                self._file.unlink(missing_ok=True)
                storage = JournalStorage(_Journal(self._file))
                self._study = optuna.create_study(
                    storage=storage, study_name=self._name, sampler=RandomSampler(seed=0), directions=study.directions
                )
            for trial in study.get_trials(deepcopy=False):
                if trial.state.is_finished() and trial.number not in self._numbers_in_file:
                    self._study.add_trial(_numbered(trial, len(self._numbers_in_file)))
                    self._numbers_in_file.add(trial.number)
        except (OSError, ValueError) as error:
            logger.warning("%s could not be written (%s)", self._file.name, error)
            self._study = None


def _numbered(trial: FrozenTrial, place: int) -> FrozenTrial:
    """Return a trial that says its number in the sweep, if its place in the file does not."""
    number = number_in_sweep(trial)
    trial = copy(trial)
    trial.user_attrs = {name: value for name, value in trial.user_attrs.items() if name != ATTR_NUMBER}
    if number != place + 1:
        trial.user_attrs[ATTR_NUMBER] = number
    return trial


class _Journal(BaseJournalBackend):
    """Appends to a file as Optuna's JournalFileBackend does, but waits for no disk and no lock: one process writes."""

    def __init__(self, file: Path) -> None:
        self._file, self._logs = file, list[dict[str, Any]]()

    @override
    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        return iter(self._logs[log_number_from:])

    @override
    def append_logs(self, logs: Sequence[dict[str, Any]]) -> None:
        lines = "".join(f"{json.dumps(log, default=str)}\n" for log in logs)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(lines)
        self._logs += logs
