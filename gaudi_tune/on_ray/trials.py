"""What a trial of Tune is in the sweep: its number, its name, its error."""

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
    """Return the number of the trial that Tune has given this tag, "<number>_<varied parameters>"."""
    return int(str(tag).split("_", maxsplit=1)[0])


def name_of(trial: Trial) -> str:
    """Return the name that Tune gives a trial and its folder."""
    return trial_name(number_of(trial))


OF_OURS = re.compile(rf"^{re.escape(errors.__name__)}\.\w+: ", re.MULTILINE)
"""Begins the text of an error of ours in that of Ray, after Ray's traceback."""


def error_of(trial: Trial) -> str:
    """Return the text of the last error that a trial has had, without Ray's own frames; it may have survived it. "" if
    there was none."""
    # Not trial.get_error(), which reads the copy in the sweep's folder, and that is made some time later.
    text = "" if trial.error_file is None else Path(trial.error_file).read_text().strip()
    return OF_OURS.split(text)[-1]
