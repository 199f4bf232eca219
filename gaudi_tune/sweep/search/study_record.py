"""The study of a sweep in memory, and what the log of the sweep has of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import optuna
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial

from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.record.state_log import TRIALS
from gaudi_tune.sweep.search.sampler_view import copy_attributes
from gaudi_tune.sweep.search.study_trial import from_snapshot, snapshot


class StudyRecord:
    """The study of a sweep. It is read and changed in memory, and the log of the sweep keeps it."""

    def __init__(
        self, directions: Sequence[Literal["minimize", "maximize"]], full_snapshot: Mapping[str, Any] | None = None
    ) -> None:
        """Begin an empty study, or take the one of a :meth:`snapshot` with all trials.

        Raises:
            Exception: What was kept is damaged. Each kind of damage raises its own.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.memory = optuna.create_study(directions=list(directions), sampler=RandomSampler(seed=0))
        self.unlogged = set[int]()
        """Numbers of the trials that have changed since the log was written."""
        if full_snapshot is not None:
            self.memory.add_trials(kept_trials(full_snapshot))
            for name, value in full_snapshot["attributes"].items():
                internals.set_study_attribute(self.memory, name, value)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials by number; not to be changed."""
        return self.memory.get_trials(deepcopy=False)

    def add(self, trial: FrozenTrial) -> int:
        """Add a trial and return its number."""
        number = len(self.trials())
        self.memory.add_trial(trial)
        self.unlogged.add(number)
        return number

    def replace(self, trial: FrozenTrial) -> None:
        """Put ``trial`` in the place of the trial with its number."""
        internals.replace_trial(self.memory, trial)
        self.unlogged.add(trial.number)

    def keep_attributes_of(self, study: optuna.Study) -> None:
        """Take over what a sampler has kept in the study that it sees."""
        if internals.study_attributes(study) != internals.study_attributes(self.memory):
            copy_attributes(study, self.memory)

    def snapshot(self, *, everything: bool) -> dict[str, Any]:
        """Return the study's part of the log, with all trials, or with those that have changed."""
        trials = self.trials()
        numbers = range(len(trials)) if everything else sorted(self.unlogged)
        attributes = dict(internals.study_attributes(self.memory))
        return {"attributes": attributes, TRIALS: {number: snapshot(trials[number]) for number in numbers}}


def kept_trials(full_snapshot: Mapping[str, Any]) -> list[FrozenTrial]:
    """Return the trials of a :meth:`StudyRecord.snapshot` with all trials, by number."""
    return [from_snapshot(trial) for _, trial in sorted(full_snapshot[TRIALS].items())]
