"""A trial of Tune as the sweep knows it: its number, its name, its failure."""

from __future__ import annotations

import shutil
from pathlib import Path

from ray.tune.experiment import Trial
from ray.tune.result import TRAINING_ITERATION

from gaudi_tune.base import names
from gaudi_tune.base.failure import Failure
from gaudi_tune.group.errors import failure_of
from gaudi_tune.private.ray_tune import last_error
from gaudi_tune.sweep.record.trial_state import TrialState, trial_name


def number_of(trial: Trial) -> int:
    """Return the number of a trial in its sweep, from 1, the baseline."""
    return number_in(trial.experiment_tag)


def number_in(tag: str | None) -> int:
    """Return the number of the trial to which Tune gave this tag, "<number>_<varied parameters>"."""
    return int(str(tag).split("_", maxsplit=1)[0])


def name_of(trial: Trial) -> str:
    """Return the name that Tune gives a trial."""
    return trial_name(number_of(trial))


def new_folder_of(trial: Trial) -> str:
    """Return the name of a new trial's folder, which Tune is to make: the trial's own name.

    A sweep that was killed may have left such a folder where Tune collects reports, if the same Ray still runs. Tune
    would give the new one another name, by which nothing finds it, and copy the old reports; so the old one is removed.
    """
    name = name_of(trial)
    shutil.rmtree(Path(trial.local_experiment_path, name), ignore_errors=True)
    return name


def give_last_report(trial: Trial, trial_state: TrialState) -> None:
    """Give Tune, for its results, the last report of a trial that went on from an earlier one and ended before another.

    Tune took that of the checkpoint for the last.
    """
    metrics = {name: value for name, value in trial_state.metrics.items() if names.is_reported(name)}
    if {**trial.last_result, **metrics} != trial.last_result:
        trial.update_last_result({**trial.last_result, **metrics, TRAINING_ITERATION: trial_state.reports})


def last_failure(trial: Trial) -> Failure | None:
    """Return the last failure of a trial, which it may have survived; None if there was none in this process."""
    error = last_error(trial)
    return None if error is None else failure_of(error)
