"""Records of a sweep for MLflow, and whether they arrived: everything, and everything once."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mlflow.entities import Run
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from gaudi_tune.show.trackers.delivery import Sender
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.show.trackers.records import CONFIGURATION, SWEEP, BeginRun, BeginSweep, Record, Update, run_of

TRIALS, EPOCHS = 3, 4
PER_CONFIGURATION = 3
"""How many trials have one configuration, as those that confirm one do."""


def free_port() -> int:
    """A port of this machine that nobody has, and that no process is given by chance before a server has started on it:
    neither Linux's (32768 to 60999) nor those of Ray's workers (10002 to 19999)."""
    while True:
        with suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", random.SystemRandom().randrange(20000, 32000)))
            return int(free.getsockname()[1])


def params_of(number: int) -> dict[str, str]:
    """The hyperparameters of a trial."""
    return {"lr": f"{0.1 / 2 ** (number % 10):.4g}", "batch_size": str(8 * 2 ** (number % 3))}


def values_of(number: int, epoch: int) -> dict[str, float]:
    """What a trial reports after an epoch."""
    return {"score": 1 - 1 / (epoch + 1 + number % 7), "loss": (1 + number % 5) / epoch}


def records_of(
    name: str, uri: str, experiment: str = "delivery", trials: int = TRIALS, epochs: int = EPOCHS
) -> list[Record]:
    """What a sweep puts into its outbox: its begin, that of its trials, their reports in turn, their ends."""
    now = int(time.time() * 1000)
    sweep = BeginSweep(
        run=SWEEP,
        time_ms=now,
        name=name,
        tags={"kind": "sweep", "outbox": str(now)},
        params={"seed": "0"},
        tracking_uri=uri,
        experiment=experiment,
        artifacts=None,
        data="reviews",
        facts=["3 texts"],
    )
    runs = {number: run_of(number) for number in range(trials)}
    begin = [
        BeginRun(
            run=run,
            time_ms=now,
            name=f"{name}-{number}",
            tags={"kind": "trial", "trial": run, CONFIGURATION: f"{name} {number // PER_CONFIGURATION}"},
            params=params_of(number),
        )
        for number, run in runs.items()
    ]
    reports = [
        Update(run=run, time_ms=now + epoch, step=epoch, metrics=values_of(number, epoch))
        for epoch in range(1, epochs + 1)
        for number, run in runs.items()
    ]
    end = [
        Update(
            run=run,
            time_ms=now + 99,
            step=epochs,
            metrics={"seconds/training": 1.5},
            tags={"status": "finished"},
            status="FINISHED",
        )
        for run in runs.values()
    ]
    return [sweep, *begin, *reports, *end]


def outbox_in(folder: Path, records: Sequence[Record]) -> Outbox:
    """A new outbox with these records."""
    folder.mkdir(exist_ok=True)
    outbox = Outbox(folder)
    for record in records:
        outbox.put(record)
    return outbox


def deliver(uri: str, outbox: Outbox) -> str:
    """Deliver what is there, end, and return what MLflow never gets."""
    sender = Sender(uri, outbox)
    sender.start()
    sender.close()
    return sender.problem


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
    children = [run for run in runs if run.data.tags.get(MLFLOW_PARENT_RUN_ID) == parents[0].info.run_id]
    assert sorted(run.info.run_name for run in children) == [f"{name}-{number}" for number in range(TRIALS)]
    for run in children:
        number = int(run.data.tags["trial"])
        assert run.data.params == params_of(number)
        assert (run.info.status, run.data.tags["status"]) == ("FINISHED", "finished")
        for metric in ("score", "loss"):
            history = client.get_metric_history(run.info.run_id, metric)
            arrived = [(value.step, value.value) for value in history]
            assert arrived == [(epoch, values_of(number, epoch)[metric]) for epoch in range(1, EPOCHS + 1)]
