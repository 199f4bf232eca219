"""The one callback that Tune has: it turns what Tune says into events of the sweep."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.result import SHOULD_CHECKPOINT

from experiments.sweep.on_ray.kept_in_process import KeptInProcess
from experiments.sweep.on_ray.sweep_run import SweepRun
from experiments.sweep.on_ray.trials import number_of
from experiments.sweep.on_ray.tune_files import OURS


class SweepCallback(KeptInProcess, tune.Callback):
    """Tells the sweep's run of everything but results, which reach it through the scheduler first."""

    def __init__(self, run: SweepRun) -> None:
        self._run = run

    def setup(self, **info: Any) -> None:
        """Begin."""
        logging.getLogger("ray.tune.tune").setLevel(logging.ERROR)  # its hint is how Tune itself would be restored
        self._run.begin()

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Tell of a trial that has its worker group."""
        self._run.trial_began(trial, trials)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Ask for a checkpoint if one is wanted, in place, as Tune's own schedulers do."""
        if self._run.wants_checkpoint(trial, can_save=result.get(SHOULD_CHECKPOINT) is not False):
            result[SHOULD_CHECKPOINT] = True

    def on_checkpoint(
        self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: tune.Checkpoint, **info: Any
    ) -> None:
        """Tell of a checkpoint that was written."""
        self._run.checkpoint_saved(number_of(trial), Path(checkpoint.path))

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Tell of a trial that lost its trial actor."""
        self._run.trial_recovered(trial)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Tell of a trial that ended without an error."""
        self._run.trial_ended(trial)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Tell of a trial that ended with an error."""
        self._run.trial_failed(trial)

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Let the sweep look at Tune's files before Tune writes them."""
        self._run.before_step(trials)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Let the sweep do what is due."""
        self._run.after_step(trials)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """End."""
        self._run.end(trials)

    def get_state(self) -> dict[str, Any]:
        """Return the sweep's snapshot, which Tune writes together with its own state."""
        return {OURS: self._run.snapshot()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Ignore what Tune hands out by the position of a callback: ``tune_files`` reads the snapshot by its name."""
