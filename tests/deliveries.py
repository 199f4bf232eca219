"""What a sweep has MLflow told, and whether it arrived: everything, and everything once."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from experiments.sweep.tracking_store import store_of

TRIALS, EPOCHS = 3, 4


def free_port() -> int:
    """A port of this machine that nobody has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def records_of(name: str, uri: str) -> list[dict[str, Any]]:
    """What a sweep puts into its outbox."""
    now = int(time.time() * 1000)
    begin = {"what": "begin sweep", "store": store_of(uri), "experiment": "delivery", "artifacts": None, "name": name}
    about = {
        "tags": {"kind": "sweep"},
        "about": {},
        "space": {},
        "data": {"source": "reviews", "facts": ["3 texts"]},
        "params": {"seed": "0"},
        "outbox": str(now),
        "time_ms": now,
    }
    records: list[dict[str, Any]] = [{**begin, **about}]
    trials = [f"{number:03d}" for number in range(TRIALS)]
    start = {"what": "begin", "time_ms": now, "params": {"lr": "0.1"}}
    end = {
        "what": "end",
        "time_ms": now + 99,
        "outcome": "finished",
        "reason": None,
        "values": {"seconds/training": 1.5},
        "step": EPOCHS,
    }
    records += [{**start, "trial": key, "name": f"{name}-{int(key)}", "trial_id": key} for key in trials]
    for epoch in range(1, EPOCHS + 1):  # trials take turns
        reported = {"time_ms": now + epoch, "step": epoch, "values": {"score": epoch / 10, "loss": 1 / epoch}}
        records += [{"what": "metrics", "trial": trial, **reported} for trial in trials]
    return [*records, *({**end, "trial": trial} for trial in trials)]


def check_delivered(uri: str, name: str) -> None:
    """Everything is there, and everything once."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("delivery")
    assert experiment is not None
    runs: list[Run] = client.search_runs([experiment.experiment_id])
    parents = [run for run in runs if run.info.run_name == name]
    assert len(parents) == 1
    assert parents[0].inputs is not None
    (data,) = parents[0].inputs.dataset_inputs
    assert (data.dataset.name, json.loads(str(data.dataset.profile))) == ("reviews", {"found": ["3 texts"]})
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parents[0].info.run_id]
    assert sorted(run.info.run_name for run in children) == [f"{name}-{number}" for number in range(TRIALS)]
    for run in children:
        assert run.data.params == {"lr": "0.1"}
        assert (run.info.status, run.data.tags["status"]) == ("FINISHED", "finished")
        for metric in ("score", "loss"):
            history = client.get_metric_history(run.info.run_id, metric)
            assert [value.step for value in history] == list(range(1, EPOCHS + 1))
