"""The study of an earlier sweep, or of one that runs, as its log has it. Nothing is written there."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial
from optuna.trial import TrialState as StudyState

from gaudi_tune.base.errors import SweepError, damage_is_an_error
from gaudi_tune.base.files import STATE_LOG
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.trial_proxy import hyperparameter
from gaudi_tune.sweep.record.events import Outcome
from gaudi_tune.sweep.record.state_log import read_log
from gaudi_tune.sweep.search.sampler_view import ATTR_FAILURE, ATTR_POINT, best_report
from gaudi_tune.sweep.search.study_record import kept_trials
from gaudi_tune.sweep.search.study_trial import number_in_sweep

OUTCOMES: dict[StudyState, Outcome] = {
    StudyState.COMPLETE: "finished",
    StudyState.PRUNED: "stopped early",
    StudyState.FAIL: "failed",
}
"""The outcomes that a study's states mean; a trial in any other state has not ended."""


def stored_trials(folder: Path) -> list[FrozenTrial]:
    """Return the trials of the study of a sweep; none if its log is gone, or not begun.

    Raises:
        SweepError: The log cannot be read.
    """
    if not (folder / STATE_LOG).exists():
        return []
    with damage_is_an_error(str(folder / STATE_LOG)):
        trials = kept_trials(read_log(folder, as_data=True)["study"])
        for trial in trials:
            number_in_sweep(trial)  # which a damaged attribute makes impossible
    return trials


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


def trial_summaries(
    trials: Sequence[FrozenTrial], objective: Objective, paused: Container[int] = ()
) -> list[dict[str, Any]]:
    """Return what a list shows of the trials of a study: how each ended, its best report, and its configuration.

    Args:
        trials: The trials of the study.
        objective: The objective by which a report is best.
        paused: Trials that wait, which the study does not know.
    """
    return [_trial_summary(trial, objective, is_paused=number_in_sweep(trial) in paused) for trial in trials]


def _trial_summary(trial: FrozenTrial, objective: Objective, *, is_paused: bool) -> dict[str, Any]:
    best_step, best_value = best_report(trial, objective) or (None, None)
    point = trial.user_attrs.get(ATTR_POINT)
    if point is not None and trial.state == StudyState.FAIL:
        best_value = point[0] if point else None
        best_step = min(
            (step for step, value in trial.intermediate_values.items() if [value] == point[:1]), default=None
        )
    summary: dict[str, Any] = {
        "trial": number_in_sweep(trial),
        "status": OUTCOMES.get(trial.state, "paused" if is_paused else "interrupted"),
        "value": best_value,
    }
    if point and len(point) > 1:
        summary["point"] = list(point)
    if ATTR_FAILURE in trial.user_attrs:
        summary["why"] = str(trial.user_attrs[ATTR_FAILURE])
    summary["at"] = best_step
    summary["config"] = {hyperparameter(name): value for name, value in trial.params.items()}
    return summary
