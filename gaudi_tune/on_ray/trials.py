"""A trial of Tune as the sweep knows it: its number, its name, its failure."""

from __future__ import annotations

import shutil
from pathlib import Path

from ray.tune.experiment import Trial

from gaudi_tune.base.failure import Failure
from gaudi_tune.group.errors import failure_of
from gaudi_tune.private.ray_tune import last_error
from gaudi_tune.sweep.record.trial_state import trial_name


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


def last_failure(trial: Trial) -> Failure | None:
    """Return the last failure of a trial, which it may have survived; None if there was none in this process."""
    error = last_error(trial)
    return None if error is None else failure_of(error)
