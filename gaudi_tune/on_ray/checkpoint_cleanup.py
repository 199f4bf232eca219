"""The deletion of checkpoints in a running sweep, and what Tune must forget then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ray.tune.experiment import Trial

from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.scheduler import SweepScheduler
from gaudi_tune.on_ray.trials import number_of
from gaudi_tune.on_ray.tune_files import forget_deleted_checkpoints
from gaudi_tune.private.ray_tune import delete_later
from gaudi_tune.sweep.policies.checkpoints import CheckpointBudget
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState


class CheckpointCleanup:
    """Keeps the checkpoints of a sweep within their budget, and has Tune forget those that are deleted."""

    def __init__(self, plan: Plan, state: SweepState, scheduler: SweepScheduler) -> None:
        self._plan, self._state, self._scheduler = plan, state, scheduler
        self._budget = CheckpointBudget(plan.folder, plan.options.checkpoint_budget, delete_later)
        self._is_due = False

    def request(self) -> None:
        """Ask for a clean-up at the end of Tune's step: a trial has saved or ended."""
        self._is_due = True

    def drop(self, trial: TrialState) -> None:
        """Delete the checkpoints of a trial that waited to be promoted, and was not."""
        self._budget.drop(self._state, trial)

    def run_if_due(self, trials: Sequence[Trial]) -> None:
        """Delete checkpoints over the budget, if a clean-up was requested."""
        if self._is_due:
            self._is_due = False
            self._run(trials)

    def finish(self, trials: Sequence[Trial]) -> None:
        """Delete checkpoints over the budget at the end of the sweep."""
        self._run(trials)
        self._budget.finish()
        for trial in trials:
            forget_deleted_checkpoints(trial)

    def _run(self, trials: Sequence[Trial]) -> None:
        if self._budget.enforce(self._state, self._checkpoints_in_use(trials)):
            being_deleted = self._budget.being_deleted
            for trial in trials:
                forget_deleted_checkpoints(trial, being_deleted)

    def _checkpoints_in_use(self, trials: Sequence[Trial]) -> Iterator[Path]:
        """Yield the checkpoints from which running trials go on, or from which other trials may."""
        for trial in trials:
            trial_state = self._state.trials.get(number_of(trial))
            if trial.is_finished() or trial_state is None:
                continue
            waits = trial_state.status == "paused" and not self._scheduler.policy.clones
            if trial.checkpoint is not None and not waits:  # that of a clone may be another trial's checkpoint
                yield Path(trial.checkpoint.path)
            for saved in trial_state.checkpoints:
                if self._scheduler.may_be_taken_over(trial, saved.step):
                    yield self._plan.folder / saved.place
