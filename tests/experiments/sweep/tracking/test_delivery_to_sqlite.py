"""Delivery to a real SQLite store: one that fails in the middle of a record, and what others and crashes left."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import mlflow
import pytest
from mlflow.tracking import MlflowClient

from experiments.sweep.tracking.delivery import LONG_PARAMS, MAX_PARAM, Sender
from experiments.sweep.tracking.outbox import RECORDS_FILE, Outbox
from tests.deliveries import check_delivered, deliver, outbox_in, params_of, records_of

BREAK = "CREATE TRIGGER broken BEFORE INSERT ON params BEGIN INSERT INTO a_table_that_is_not_there VALUES (1); END"
"""Takes everything but parameters, for which it fails as a database that is locked."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's; it takes seconds to make."""
    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def uri(database: Path) -> str:
    return f"sqlite:///{database}"


def test_a_store_that_fails_after_it_has_made_a_run_gets_its_parameters_when_it_is_mended(
    uri: str, database: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client, outbox = MlflowClient(uri), Outbox(tmp_path)
    records = records_of("half", uri)
    sender = Sender(uri, outbox, [])
    sender.start()
    outbox.put(records[0])
    wait_until(lambda: not outbox.waiting)
    change(database, BREAK)
    for record in records[1:]:
        outbox.put(record)
    wait_until(lambda: "a_table_that_is_not_there" in caplog.text and "trying again" in caplog.text)
    assert client.get_run(outbox.ids["000"]).data.params == {}
    change(database, "DROP TRIGGER broken")
    sender.close()
    check_delivered(uri, "half")


def test_long_parameters_arrive_when_there_is_a_place_for_files_again(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And a trial that goes on with changed hyperparameters keeps those of its beginning."""
    outbox, files, (sweep, trial, *_) = Outbox(tmp_path), tmp_path / "artifacts", records_of("long", uri, "long")
    begin = {**trial, "params": {**params_of(0), "prompt": "word " * MAX_PARAM}}
    sender = Sender(uri, outbox, [])
    sender.start()
    outbox.put({**sweep, "artifacts": str(files)})
    wait_until(lambda: not outbox.waiting)
    files.rename(tmp_path / "kept")
    files.write_text("in the way")
    outbox.put(begin)
    wait_until(lambda: "trying again" in caplog.text)
    files.unlink()
    (tmp_path / "kept").rename(files)
    outbox.put({**trial, "params": {"lr": "1", "batch_size": "1"}})
    sender.close()
    assert not outbox.waiting
    run = outbox.ids["000"]
    told = mlflow.artifacts.download_artifacts(run_id=run, artifact_path=LONG_PARAMS, tracking_uri=uri)
    assert json.loads(Path(told).read_text()) == {"prompt": begin["params"]["prompt"]}
    params = MlflowClient(uri).get_run(run).data.params
    assert {name: params[name] for name in params_of(0)} == params_of(0)


def test_records_survive_a_crash_of_the_machine_before_mlflow_is_told_of_them(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, fsync = outbox_in(tmp_path / "kept", records_of("kept", uri)), os.fsync
    synced: list[tuple[str, int]] = []

    def noted(file: int) -> None:
        fsync(file)
        synced.append((Path(os.readlink(f"/proc/self/fd/{file}")).name, len(outbox.ids)))

    monkeypatch.setattr(os, "fsync", noted)
    deliver(uri, outbox, [])
    check_delivered(uri, "kept")
    assert synced[0] == (RECORDS_FILE, 0)
    assert len(synced) >= 2


def change(database: Path, statement: str) -> None:
    """Change the database behind MLflow's back."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        connection.execute(statement)
        connection.commit()


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until
        time.sleep(0.1)
