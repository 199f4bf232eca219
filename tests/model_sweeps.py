"""Sweeps that end with a model, without the training: their trials have a checkpoint that was made before."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.entities import LoggedModel, Run
from mlflow.tracking import MlflowClient

from experiments import SweepOptions
from experiments.sweep.experiment import Experiment
from experiments.sweep.plan import make_plan
from experiments.sweep.tracking.best_model import record_of
from experiments.sweep.tracking.delivery import Sender
from experiments.sweep.tracking.outbox import Outbox
from tests.deliveries import EPOCHS, records_of, values_of
from tests.sessions import reports_of


def make_checkpoint(experiment: Experiment, trial: Mapping[str, Any], folder: Path) -> Path:
    """Train a trial for a second, and return where its checkpoint is."""
    small = {"train_samples": 32, "val_samples": 8, "batch_size": 16, "epochs": 1}
    reports_of(experiment.train_loop, {**trial, **small}, save_at=1, save_to=folder / experiment.name)
    return folder / experiment.name


class Sweep:
    """A sweep whose trials 1 and 2 have the same checkpoint; MLflow has been told of both."""

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

    def summary(self, number: int) -> dict[str, Any]:
        """What the sweep comes to if that trial is the best."""
        at = {"value": values_of(number, EPOCHS)["score"], "epoch": EPOCHS, "checkpoint": str(self.checkpoint(number))}
        return {"best": {"trial": number, "config": {"lr": 0.1}, **at}, "metric": "score"}

    def end(self, number: int) -> None:
        """Tell MLflow that this trial is the best."""
        record = record_of(self.plan, self.summary(number), time_ms=0)
        assert record is not None
        self.outbox.put(record)
        self.deliver()

    def deliver(self) -> None:
        sender = Sender(self.plan.tracking_uri, self.outbox, [])
        sender.start()
        sender.close()
        assert not self.outbox.waiting

    def run(self, trial: str = "") -> Run:
        return self.client.get_run(self.outbox.ids[trial])

    def outputs(self, trial: str = "") -> list[str]:
        """Ids of the models that a run shows."""
        outputs = self.run(trial).outputs
        return [output.model_id for output in outputs.model_outputs] if outputs else []

    def models(self) -> list[LoggedModel]:
        """Those of this sweep, the first one first."""
        of_all = self.client.search_logged_models([self.outbox.ids["experiment"]])
        return [model for model in reversed(of_all) if model.tags["sweep"] == self.plan.name]
