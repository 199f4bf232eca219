"""The study of an earlier sweep, or of one that runs, as its log has it. Nothing is written there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.trial_proxy import hyperparameter
from gaudi_tune.sweep.record.state_log import trials_in_log
from gaudi_tune.sweep.search.study_record import kept_trials
from gaudi_tune.sweep.search.study_trial import number_in_sweep


def stored_trials(folder: Path) -> list[FrozenTrial]:
    """Return the trials of the study of a sweep; none if its log is gone, or not begun.

    Raises:
        SweepError: The log cannot be read.
    """

    def trials_of(parts: Mapping[str, Any]) -> list[FrozenTrial]:
        trials = kept_trials(parts["study"])
        for trial in trials:
            number_in_sweep(trial)  # which a damaged attribute makes impossible
        return trials

    return trials_in_log(folder, trials_of)


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
