"""The study of a sweep as its log has it."""

from __future__ import annotations

from pathlib import Path

from optuna.trial import FrozenTrial

from gaudi_tune.sweep.record.state_log import read_log
from gaudi_tune.sweep.search.study_record import kept_trials


def stored_trials(folder: Path) -> list[FrozenTrial]:
    """Return the trials of the study of a sweep."""
    return kept_trials(read_log(folder, as_data=True)["study"])
