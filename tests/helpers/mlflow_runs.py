"""The runs that MLflow has of a sweep."""

from __future__ import annotations

from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from gaudi_tune.define.sweep_plan import Plan


def runs_of(plan: Plan) -> dict[str, Run]:
    """The runs of a sweep by number of the trial; its own under "sweep"."""
    runs = all_runs(plan)
    (parent,) = [run for run in runs if run.info.run_name == plan.name]
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    found = {run.data.tags["trial"]: run for run in children}
    assert len(found) == len(children)
    return {"sweep": parent, **found}


def all_runs(plan: Plan) -> list[Run]:
    """The runs of a sweep's experiment."""
    client = MlflowClient(plan.tracking_uri)
    known = client.get_experiment_by_name(plan.experiment.name)
    assert known is not None
    return list(client.search_runs([known.experiment_id]))


def history(plan: Plan, run: Run, metric: str) -> list[tuple[int, float]]:
    values = MlflowClient(plan.tracking_uri).get_metric_history(run.info.run_id, metric)
    return [(value.step, value.value) for value in values]
