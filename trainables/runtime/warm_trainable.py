"""The tune.Trainable whose trials pass through a warm worker group."""

from __future__ import annotations

import logging
from typing import Any

from ray import tune
from ray.tune.result import RESULT_DUPLICATE

from trainables.runtime.worker_group import WorkerGroup, WorkerGroupSpec

logger = logging.getLogger(__name__)


class WarmTrainable(tune.Trainable):
    """A trial actor: Tune reuses it from trial to trial, and with it the worker group that it owns.

    One report of the train loop is one Tune result. Between two results the workers wait, so a trial that is stopped
    has trained no step too many, and a checkpoint is written only when Tune asks for one.
    """

    group: WorkerGroup

    def setup(self, config: dict[str, Any], spec: WorkerGroupSpec, settings: dict[str, Any]) -> None:
        """Start the workers.

        Args:
            config: The hyperparameters of the first trial.
            spec: What it takes to start the group.
            settings: What the train loop is told in every trial besides its hyperparameters.
        """
        self.settings = settings
        self._begin(config)
        self.group = WorkerGroup(spec, f"workers-of-{self.trial_id}")

    def step(self) -> dict[str, Any]:
        """Let the trial train to its next report, and return that."""
        if self._started:
            report = self.group.next_report()
        else:
            report = self.group.start({**self.settings, **self.trial_config}, self._checkpoint)
            self._started = True
        # The loop returned without another report: Tune then takes the last one as the trial's end.
        return {RESULT_DUPLICATE: True, "done": True} if report["kind"] == "finished" else report["metrics"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial; the one before it ends when this one starts."""
        self._begin(new_config)
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Have rank 0 write the state of the trial."""
        self.group.save(checkpoint_dir)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Start the trial from a checkpoint, at its next step."""
        self._begin(self.trial_config, checkpoint_dir)

    def cleanup(self) -> None:
        """End the workers."""
        if hasattr(self, "group"):  # else they never started
            self.group.exit()

    def _begin(self, config: dict[str, Any], checkpoint: str | None = None) -> None:
        self.trial_config, self._checkpoint, self._started = config, checkpoint, False
