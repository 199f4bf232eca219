"""A limit to what the checkpoints of a sweep take on disk: those that nobody can need any more go, the worst first."""

from __future__ import annotations

import logging
import math
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ByteSize
from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from experiments.sweep.options import bytes_of
from experiments.sweep.outcome import number_of, trial_name
from experiments.sweep.schedulers.population import may_be_taken_over
from experiments.sweep.summary import best_trial

if TYPE_CHECKING:
    from experiments.sweep.plan import Plan

logger = logging.getLogger(__name__)

KEPT_OF_UNFINISHED = 2
"""Checkpoints kept of a trial that has not ended: after a crash, a snapshot may name the one before the last."""


class KeepToBudget(Callback):
    """Deletes checkpoints when those of the sweep take more than its budget, and has Tune forget what is gone.

    What stays in any case: the checkpoints of the trials that are best by their best and by their last value; the last
    two of a trial that has not ended; and what pbt may have another trial take over.
    """

    def __init__(self, plan: Plan, scheduler: TrialScheduler) -> None:
        self._plan, self._scheduler = plan, scheduler
        self._limit = bytes_of(plan.options.checkpoint_budget)
        self._changed = self._said = False

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Look at the checkpoints when Tune is done with this one."""
        self._changed = True

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Look at the checkpoints when Tune is done with this trial."""
        self._changed = True

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Look at the checkpoints when Tune is done with this trial."""
        self._changed = True

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Keep to the budget, if something has changed."""
        if self._changed:
            self._changed = False
            self._keep(trials)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Keep to the budget; no result of the sweep names a checkpoint that is gone."""
        self._keep(trials)
        for trial in trials:
            _forget_what_is_gone(trial)

    def _keep(self, trials: list[Trial]) -> None:
        if self._limit is None:
            return
        sizes = {place: _size_of(place) for place in self._plan.folder.glob("trial-*/checkpoint_*")}
        taken = sum(sizes.values())
        if taken <= self._limit:
            return
        for place in self._worst_first(set(sizes) - self._needed(trials, set(sizes)), trials):
            shutil.rmtree(place, ignore_errors=True)
            taken += _size_of(place) - sizes[place]
            if taken <= self._limit:
                break
        for trial in trials:
            _forget_what_is_gone(trial)
        if taken > self._limit and not self._said:
            self._said = True
            logger.warning(
                "--checkpoint-budget %s: checkpoints that are still needed take %s. They stay, and the sweep goes on.",
                self._plan.options.checkpoint_budget, ByteSize(taken).human_readable(decimal=True),
            )  # fmt: skip

    def _worst_first(self, places: set[Path], trials: list[Trial]) -> list[Path]:
        """Return the places by their values; what no trial knows, which a crash has left, comes first."""
        values = {_place(saved): self._value(saved) for trial in trials for saved in _saved(trial)}
        return sorted(places, key=lambda place: (values.get(place, -math.inf), place))

    def _needed(self, trials: list[Trial], there: set[Path]) -> set[Path]:
        experiment = self._plan.experiment
        needed = {place for trial in trials if not trial.is_finished() for place in self._needed_by(trial, there)}
        ended = [trial for trial in trials if trial.is_finished()]
        best, best_at_end = best_trial(trials, experiment), best_trial(ended, experiment, "last")
        # The best trial may not have saved its best value yet, or be lost before it has.
        kept = [max((saved for trial in trials for saved in _saved(trial)), key=self._value, default=None)]
        kept += [best.run_metadata.checkpoint_manager.best_checkpoint_result] if best is not None else []
        kept += [best_at_end.latest_checkpoint_result] if best_at_end is not None else []
        return needed | {_place(saved) for saved in kept if saved is not None}

    def _needed_by(self, trial: Trial, there: set[Path]) -> set[Path]:
        """Return what a trial that has not ended may go on from, or another may take over from it."""
        known = sorted(_place(saved) for saved in _saved(trial))
        unknown = {place for place in there if place.parent.name == trial_name(number_of(trial))} - set(known)
        taken_over = {_place(saved) for saved in _saved(trial) if self._may_be_taken_over(trial, saved)}
        last = (
            {_place(trial.latest_checkpoint_result)} if trial.latest_checkpoint_result else set()
        )  # with pbt another's
        return unknown | set(known[-KEPT_OF_UNFINISHED:]) | last | taken_over  # unknown: being written

    def _may_be_taken_over(self, trial: Trial, saved: Any) -> bool:
        return may_be_taken_over(self._scheduler, trial, self._plan.budget.progress(saved.metrics))

    def _value(self, saved: Any) -> float:
        """Return the value that a checkpoint was saved with, more is better."""
        value = float(saved.metrics.get(self._plan.experiment.metric, math.nan))
        return (value if self._plan.experiment.mode == "max" else -value) if math.isfinite(value) else -math.inf


def _saved(trial: Trial) -> list[Any]:
    """Return the trial's own checkpoints with the metrics of their reports, the best last."""
    saved: list[Any] = trial.run_metadata.checkpoint_manager._checkpoint_results
    return saved


def _place(saved: Any) -> Path:
    return Path(saved.checkpoint.path)


def _forget_what_is_gone(trial: Trial) -> None:
    """Take checkpoints that are gone from what Tune knows of a trial; only an ended one may lose its last.

    Where that of another is gone, which a snapshot names, the trial starts anew: WarmTrainable sees to it.
    """
    manager = trial.run_metadata.checkpoint_manager
    there = [saved for saved in _saved(trial) if _place(saved).is_dir()]
    last = manager.latest_checkpoint_result
    last_is_gone = trial.is_finished() and last is not None and not _place(last).is_dir()
    if len(there) == len(_saved(trial)) and not last_is_gone:
        return
    manager._checkpoint_results = there
    if last_is_gone:
        manager._latest_checkpoint_result = manager.best_checkpoint_result
    trial.invalidate_json_state()
    trial.run_metadata.invalidate_cache()


def _size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder, 0 if there is none."""
    size = 0
    for inside, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):  # it is being written, and has its last name by now
                size += (Path(inside) / file).stat().st_size
    return size
