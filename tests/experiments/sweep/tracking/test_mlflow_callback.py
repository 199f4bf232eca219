"""What the callback writes down for MLflow, without Ray: trials and results as Tune hands them over."""

from __future__ import annotations

from pathlib import Path

from mlflow.tracking import MlflowClient
from ray.tune.experiment import Trial

from experiments import SweepOptions
from experiments.sweep.ledger import Ledger
from experiments.sweep.plan import make_plan
from experiments.sweep.tracking.mlflow_callback import MlflowTracking
from tests.experiments.sweep.quadratic import QUADRATIC


def test_epochs_that_are_counted_from_0_are_told_once_each(storage: Path) -> None:
    """A trial that was lost comes by its first reports again."""
    plan = make_plan(QUADRATIC, SweepOptions(storage=storage, name="from-0", device="cpu"))
    plan.folder.mkdir(parents=True)
    tracking = MlflowTracking(plan, Ledger(plan))
    tracking.setup()
    trial = Trial("quadratic", config={"x": 0.5}, experiment_tag="1_x=0.5", stub=True)
    tracking.on_trial_start(0, [], trial)
    for epoch in (0, 1, 0, 1, 2):
        tracking.on_trial_result(0, [], trial, {"score": epoch / 4, "epoch": epoch})
    sender = tracking._sender
    assert sender is not None
    sender.close()
    history = MlflowClient(plan.tracking_uri).get_metric_history(sender.outbox.ids["001"], "score")
    assert [(value.step, value.value) for value in history] == [(0, 0.0), (1, 0.25), (2, 0.5)]
