"""The tune.Trainable whose trials pass through a warm worker group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ray import tune
from ray.tune.result import RESULT_DUPLICATE

from trainables.runtime import names
from trainables.runtime.worker_group import DevicesNotReadyError, WorkerGroup, WorkerGroupSpec

logger = logging.getLogger(__name__)

START_SECONDS = "start_s"
"""Seconds from Tune's order to train until the trial's first training step; in its first report only. The first trial
of a group has the start of the workers in it."""


PAUSES_S = (2.0, 4.0, 8.0, 16.0)
"""How long to wait before each new try to get devices that are being released. Intel publishes no duration."""


class WarmTrainable(tune.Trainable):
    """A trial actor: Tune reuses it from trial to trial, and with it the worker group that it owns.

    One report of the train loop is one Tune result. Between two results the workers wait, so a trial that is stopped
    has trained no step too many, and a checkpoint is written only when Tune asks for one.
    """

    def setup(
        self,
        config: dict[str, Any],
        spec: WorkerGroupSpec,
        settings: dict[str, Any],
        environment_of: Callable[[Mapping[str, Any]], Mapping[str, str]],
    ) -> None:
        """Take the first trial.

        Args:
            config: The hyperparameters of the first trial.
            spec: What it takes to start the group.
            settings: What the train loop is told in every trial besides its hyperparameters.
            environment_of: Returns the variables that the workers of a configuration must have been started with.
        """
        self.spec, self.settings, self.environment_of = spec, settings, environment_of
        self.group: WorkerGroup | None = None
        self._begin(config)

    def step(self) -> dict[str, Any]:
        """Let the trial train to its next report, and return that.

        Raises:
            WorkerGroupError: The train loop raised, or the workers are gone.
            ValueError: The train loop returned without a report.
        """
        if self.group is None or not self._started:
            return self._first_step()
        report = self.group.next_report()
        # The loop returned without another report: Tune then takes the last one as the trial's end.
        return {RESULT_DUPLICATE: True, "done": True} if report["kind"] == "finished" else report["metrics"]

    def _first_step(self) -> dict[str, Any]:
        began = time.time()
        config = {**self.settings, **self.trial_config}
        group = self._group_with(dict(self.environment_of(config)))
        ready = time.time()
        report = group.start(config, self._checkpoint)
        self._started = True
        if report["kind"] == "finished":
            raise ValueError("the train loop returned without a report: call trainables.runtime.report() once an epoch")
        reported: dict[str, Any] = report["metrics"]
        reported[START_SECONDS] = reported.get(names.FIRST_STEP_AT, ready) - began
        return reported

    def _group_with(self, environment: dict[str, str]) -> WorkerGroup:
        """Return the group, started if there is none whose processes have these variables."""
        # Not in setup(): an error there ends the actor's creation, and Tune would wait for it for ever.
        if self.group is not None and self.spec.environment != environment:
            self.group.exit()
            self.group = None
        if self.group is None:
            self.spec = replace(self.spec, environment=environment)
            self.group = self._new_group()
        return self.group

    def _new_group(self) -> WorkerGroup:
        """Start a group; devices that their last owner has not given back yet are waited for."""
        name = f"workers-of-{self.trial_id}"
        for pause_s in PAUSES_S:
            if (group := self._group_if_ready(name, pause_s)) is not None:
                return group
        return WorkerGroup(self.spec, name)

    def _group_if_ready(self, name: str, pause_s: float) -> WorkerGroup | None:
        try:
            return WorkerGroup(self.spec, name)
        except DevicesNotReadyError as error:
            reason = str(error).strip().splitlines()[-1]
            logger.warning("%s: trying again in %.0f s (%s)", name, pause_s, reason)
            time.sleep(pause_s)
            return None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial; the one before it ends when this one starts."""
        self._begin(new_config)
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Have rank 0 write the state of the trial."""
        assert self.group is not None, "Tune saves a trial after its first step"
        self.group.save(checkpoint_dir)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Start the trial from a checkpoint, at its next step."""
        self._begin(self.trial_config, checkpoint_dir)

    def cleanup(self) -> None:
        """End the workers."""
        if self.group is not None:
            self.group.exit()

    def _begin(self, config: dict[str, Any], checkpoint: str | None = None) -> None:
        self.trial_config, self._checkpoint, self._started = config, checkpoint, False
