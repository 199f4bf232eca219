"""Delivery to a real SQLite store: one that fails in the middle of a record, and what others and crashes left."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.tracking import MlflowClient

from experiments.sweep.tracking.delivery import LONG_PARAMS, MAX_PARAM, Sender
from experiments.sweep.tracking.outbox import RECORDS_FILE, STATE_FILE, Outbox
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


def test_what_is_wrong_with_one_that_was_left_holds_up_neither_others_nor_the_sweep(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, *rest = records_of("left", uri)
    outbox_in(tmp_path / "wrong", [first, {"is": "no record"}, *rest]).close()
    outbox_in(tmp_path / "left", [first, *rest]).close()
    left = [tmp_path / "not there", *Outbox.left_in(tmp_path)]
    outbox = outbox_in(tmp_path / "next", records_of("next", uri))
    deliver(uri, outbox, left[::-1])
    assert not outbox.waiting
    for name in ("left", "next"):
        check_delivered(uri, name)
    for name in ("not there", "wrong"):
        assert f"what {tmp_path / name} left for MLflow cannot be delivered; it stays there" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("of_somebody", ["", RECORDS_FILE])
def test_what_somebody_else_left_is_not_delivered_even_if_asked(of_somebody: str, uri: str, tmp_path: Path) -> None:
    outbox_in(tmp_path / "theirs", records_of("theirs", uri)).close()
    os.chown(tmp_path / "theirs" / of_somebody, 54321, -1)
    deliver(uri, outbox_in(tmp_path / "mine", records_of("mine", uri)), [tmp_path / "theirs"])
    assert not (tmp_path / "theirs" / STATE_FILE).exists()


def test_files_of_other_places_are_not_sent(uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is in the sweep's folder is; a link there that leads out of it is not."""
    (tmp_path / "private").mkdir()
    key, folder = tmp_path / "private" / "key", tmp_path / "sweep"
    key.write_text("hush")
    sweep, *trials = records_of("files", uri, "files")
    outbox = outbox_in(folder, [{**sweep, "artifacts": str(tmp_path / "artifacts")}, *trials])
    for name in ("timeline.png", "trial-000/checkpoint/state.pt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("shown")
    (folder / "link.png").symlink_to(key)
    files = [folder / "timeline.png", folder / "link.png", folder / ".." / "private" / "key", key]
    outbox.put({"what": "pictures", "files": [str(file) for file in files], "last": True, "time_ms": 0})
    for trial, checkpoint in ((0, folder / "trial-000" / "checkpoint"), (1, key.parent)):
        outbox.put({"what": "end of sweep", "summary": summary(trial, checkpoint), "time_ms": 0})
    deliver(uri, outbox, [])
    client = MlflowClient(uri)
    shown = {file.path for run in outbox.ids if run != "experiment" for file in client.list_artifacts(outbox.ids[run])}
    assert shown == {"timeline.png", "space.json", "summary.json", "checkpoint"}
    assert client.list_artifacts(outbox.ids["001"]) == []
    assert not [file for file in (tmp_path / "artifacts").rglob("*") if file.is_file() and file.read_text() == "hush"]
    assert caplog.text.count("it is not in that folder") == 4


def summary(trial: int, checkpoint: Path) -> dict[str, Any]:
    """What a sweep comes to whose best trial is this one."""
    best = {"trial": trial, "value": 1.0, "checkpoint": str(checkpoint)}
    ended: dict[str, Any] = {"trials": {"finished": 3}, "interrupted": [], "ended_early": None, "complete": True}
    return {"best": best, "metric": "score", "device_seconds": {}, **ended}


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
