"""A trial of Tune as the sweep knows it: its number, its name, its error."""

from __future__ import annotations

import re
from pathlib import Path

from ray.tune.experiment import Trial

from gaudi_tune.group import errors
from gaudi_tune.sweep.record.trial_state import trial_name


def number_of(trial: Trial) -> int:
    """Return the number of a trial in its sweep, from 1, the baseline."""
    return number_in(trial.experiment_tag)


def number_in(tag: str | None) -> int:
    """Return the number of the trial to which Tune gave this tag, "<number>_<varied parameters>"."""
    return int(str(tag).split("_", maxsplit=1)[0])


def name_of(trial: Trial) -> str:
    """Return the name that Tune gives a trial and its folder."""
    return trial_name(number_of(trial))


OUR_ERROR = re.compile(rf"^{re.escape(errors.__name__)}\.\w+: ", re.MULTILINE)
"""Matches where, after Ray's traceback, the text of an error of this project begins."""


def error_of(trial: Trial) -> str:
    """Return the text of the last error of a trial, which it may have survived, without Ray's own frames.

    Returns "" if there was none.
    """
    # Not trial.get_error(): it reads the copy in the sweep's folder, which is made some time later.
    text = "" if trial.error_file is None else Path(trial.error_file).read_text().strip()
    return OUR_ERROR.split(text)[-1]
