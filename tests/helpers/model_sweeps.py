"""Sweeps that end with a model, without the training: their trials have a checkpoint that was made before."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.entities import LoggedModel, Run
from mlflow.tracking import MlflowClient

from gaudi_tune import SweepOptions
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.trackers.model_line import load_line
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.show.trackers.records import SWEEP, LogModel, run_of
from tests.helpers.deliveries import EPOCHS, deliver, records_of, values_of
from tests.helpers.sessions import reports_of


def make_checkpoint(experiment: Experiment, trial: Mapping[str, Any], folder: Path) -> Path:
    """Train a trial for a second, and return where its checkpoint is."""
    small = {"train_samples": 32, "val_samples": 8, "batch_size": 16, "epochs": 1}
    reports_of(experiment.train_loop, {**trial, **small}, save_at=1, save_to=folder / experiment.name)
    return folder / experiment.name


class Sweep:
    """A sweep whose trials 1 and 2 have the same checkpoint, and whose outbox has both."""

    def __init__(self, uri: str, storage: Path, name: str, experiment: Experiment, checkpoint: Path) -> None:
        options = SweepOptions(storage=storage, name=name, tracking_uri=uri, register=f"model of {name}")
        self.plan, self.client = make_plan(experiment, options), MlflowClient(uri)
        for number in (1, 2):
            shutil.copytree(checkpoint, self.checkpoint(number))
        self.outbox = Outbox(self.plan.folder)
        for record in records_of(name, uri):
            self.outbox.put(record)

    def checkpoint(self, number: int) -> Path:
        return self.plan.folder / f"trial-{number:03d}" / "checkpoint_000000"

    def model(self, number: int) -> LogModel:
        """The record of the model, if that trial is the best."""
        load = self.plan.experiment.predictor
        assert load is not None
        return LogModel(
            run=run_of(number),
            time_ms=0,
            sweep=self.plan.name,
            checkpoint=str(self.checkpoint(number)),
            loaded_by=f"{load.__module__}:{load.__qualname__}",
            params={"lr": "0.1"},
            metric="score",
            value=values_of(number, EPOCHS)["score"],
            step=EPOCHS,
            register=self.plan.options.register,
        )

    def end(self, number: int) -> str:
        """Deliver that trial's model as the best one, and return what MLflow never gets."""
        self.outbox.put(self.model(number))
        return self.deliver()

    def deliver(self) -> str:
        problem = deliver(self.plan.tracking_uri, self.outbox)
        assert not self.outbox.waiting
        return problem

    def load_line(self, number: int) -> str | None:
        """How that trial's model is loaded."""
        uri, name = self.plan.tracking_uri, self.plan.options.register
        return load_line(self.outbox.ids, str(self.checkpoint(number)), uri, name)

    def run(self, trial: str = SWEEP) -> Run:
        return self.client.get_run(self.outbox.ids[trial])

    def outputs(self, trial: str = SWEEP) -> list[str]:
        """Ids of the models that a run shows."""
        outputs = self.run(trial).outputs
        return [output.model_id for output in outputs.model_outputs] if outputs else []

    def models(self) -> list[LoggedModel]:
        """Those of this sweep, the first one first."""
        of_all = self.client.search_logged_models([self.outbox.ids["experiment"]])
        return [model for model in reversed(of_all) if model.tags["sweep"] == self.plan.name]
