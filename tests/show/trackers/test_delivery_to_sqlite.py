"""Delivery to a real SQLite store: one that fails in the middle of a record, crashes, and files of other places."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import mlflow
import pytest
from filelock import FileLock
from mlflow.entities import Experiment
from mlflow.tracking import MlflowClient

from gaudi_tune.base.files import OUTBOX_FILE
from gaudi_tune.show.trackers.delivery import Sender
from gaudi_tune.show.trackers.mlflow_runs import LONG_PARAMS, MAX_PARAM, MAX_TRIES
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.show.trackers.records import EXPERIMENT, SWEEP, BeginRun, BeginSweep, LogFiles
from tests.helpers.deliveries import TRIALS, check_delivered, deliver, outbox_in, params_of, records_of
from tests.helpers.mlflow_store import empty_store

BREAK = "CREATE TRIGGER broken BEFORE INSERT ON params BEGIN INSERT INTO a_table_that_is_not_there VALUES (1); END"
"""Takes everything but parameters, for which it fails as a database that is locked."""


SEND_EVERY_S = 0.3


@pytest.fixture(autouse=True)
def send_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaudi_tune.show.trackers.delivery.SEND_EVERY_S", SEND_EVERY_S)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    empty_store(file)
    return file


@pytest.fixture
def uri(database: Path) -> str:
    return f"sqlite:///{database}"


def test_a_store_that_fails_after_it_has_made_a_run_gets_its_parameters_when_it_works_again(
    uri: str, database: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client, outbox = MlflowClient(uri), Outbox(tmp_path)
    records = records_of("half", uri)
    sender = Sender(uri, outbox)
    sender.start()
    outbox.put(records[0])
    wait_until(lambda: not outbox.waiting)
    change(database, BREAK)
    for record in records[1:]:
        outbox.put(record)
    wait_until(lambda: "a_table_that_is_not_there" in caplog.text and "trying again" in caplog.text)
    found = partial(client.search_runs, [outbox.ids[EXPERIMENT]], "tags.trial = '000'")
    wait_until(lambda: len(found()) == 1)  # after the first failure, which leaves nothing, call by call
    assert found()[0].data.params == {}
    change(database, "DROP TRIGGER broken")
    sender.close()
    check_delivered(uri, "half")


def test_a_database_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    """MLflow changes its tables one by one, and does not go on with tables that are changed by half."""
    file, left = tmp_path / "new.db", tmp_path / "new.db.0.partial"
    left.write_bytes(b"of a process that was killed")
    uri = f"sqlite:///{file}"
    assert deliver(uri, outbox_in(tmp_path / "sweep", records_of("new", uri))) == ""
    check_delivered(uri, "new")
    assert {path.name.removeprefix(file.name) for path in tmp_path.glob("new.db*")} <= {"", ".lock", "-wal", "-shm"}
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_long_parameters_arrive_when_there_is_a_place_for_files_again(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox, files, (sweep, trial, *_) = Outbox(tmp_path), tmp_path / "artifacts", records_of("long", uri, "long")
    assert isinstance(sweep, BeginSweep)
    assert isinstance(trial, BeginRun)
    begin = replace(trial, params={**params_of(0), "prompt": "word " * MAX_PARAM})
    sender = Sender(uri, outbox)
    sender.start()
    outbox.put(replace(sweep, artifacts=str(files), space={"lr": "1e-05 to 0.1"}))
    wait_until(lambda: not outbox.waiting)
    files.rename(tmp_path / "kept")
    files.write_text("in the way")
    outbox.put(begin)
    wait_until(lambda: "trying again" in caplog.text)
    files.unlink()
    (tmp_path / "kept").rename(files)
    sender.close()
    assert not outbox.waiting
    run = outbox.ids["000"]
    file = mlflow.artifacts.download_artifacts(run_id=run, artifact_path=LONG_PARAMS, tracking_uri=uri)
    assert json.loads(Path(file).read_text()) == {"prompt": begin.params["prompt"]}
    params = MlflowClient(uri).get_run(run).data.params
    assert {name: params[name] for name in params_of(0)} == params_of(0)


def test_records_survive_a_crash_of_the_machine_before_mlflow_gets_them(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, fsync = outbox_in(tmp_path / "kept", records_of("kept", uri)), os.fsync
    synced: list[tuple[str, int]] = []

    def noted(file: int) -> None:
        fsync(file)
        synced.append((Path(os.readlink(f"/proc/self/fd/{file}")).name, len(outbox.ids)))

    monkeypatch.setattr(os, "fsync", noted)
    deliver(uri, outbox)
    check_delivered(uri, "kept")
    assert synced[0] == (OUTBOX_FILE, 0)
    assert len(synced) >= 2


def test_a_line_that_is_not_a_record_blocks_nothing(uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, *rest = records_of("spoiled", uri)
    outbox = outbox_in(tmp_path, [first])
    with (tmp_path / OUTBOX_FILE).open("ab") as file:
        file.write(b'{"is": "no record"}\n')
    for record in rest:
        outbox.put(record)
    deliver(uri, outbox)
    assert not outbox.waiting
    check_delivered(uri, "spoiled")
    assert "a line of 20 bytes is not a record and is skipped (KeyError('version'))" in caplog.text


def test_files_are_sent_also_from_a_folder_that_was_moved(uri: str, tmp_path: Path) -> None:
    folder, moved = tmp_path / "results" / "sweep", tmp_path / "archive" / "sweep"
    folder.parent.mkdir()
    sweep, *trials = records_of("moved", uri, "moved")
    assert isinstance(sweep, BeginSweep)
    outbox = outbox_in(folder, [replace(sweep, artifacts=str(tmp_path / "artifacts")), *trials])
    (folder / "timeline.png").write_text("shown")
    outbox.put(LogFiles(run=SWEEP, time_ms=0, files=["timeline.png"]))
    outbox.close()
    moved.parent.mkdir()
    folder.rename(moved)
    outbox = Outbox(moved)
    deliver(uri, outbox)
    assert [file.path for file in MlflowClient(uri).list_artifacts(outbox.ids[SWEEP])] == ["timeline.png"]


def test_two_sweeps_may_make_their_experiment_at_the_same_time(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = MlflowClient.get_experiment_by_name
    made_by_the_other: list[str] = []

    def look(client: MlflowClient, name: str) -> Experiment | None:
        if made_by_the_other:
            return looked(client, name)
        made_by_the_other.append(client.create_experiment(name))  # after this one has looked
        return None

    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", look)
    outbox = outbox_in(tmp_path / "sweep", records_of("together", uri, "together"))
    deliver(uri, outbox)
    client = MlflowClient(uri)
    made = looked(client, "together")
    assert made is not None and len(client.search_runs([made.experiment_id])) == 1 + TRIALS


def test_a_store_that_cannot_be_opened_takes_everything_once_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlflow.store.db.utils.MAX_RETRY_COUNT", 1)  # else each try takes 102 s
    file, count = tmp_path / "mlflow.db", MAX_TRIES + 2
    file.mkdir()
    uri = f"sqlite:///{file}"
    outbox = outbox_in(tmp_path / "sweep", records_of("opened", uri))
    sender = Sender(uri, outbox)
    monkeypatch.setattr("gaudi_tune.show.trackers.delivery.SEND_EVERY_S", 0.1)
    monkeypatch.setattr("gaudi_tune.show.trackers.delivery.WARN_EVERY", 2)
    sender.start()
    wait_until(lambda: caplog.text.count("cannot be opened: ") >= count // 2)
    file.rmdir()
    empty_store(file)
    sender.close()
    assert not outbox.waiting
    check_delivered(uri, "opened")


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


def test_a_sweep_opens_a_store_after_another_process_has_made_its_tables(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    outbox = outbox_in(tmp_path / "sweep", records_of("sweep", f"sqlite:///{file}"))
    sender = Sender(f"sqlite:///{file}", outbox)
    with FileLock(f"{file}.lock"):
        sender.start()
        time.sleep(3 * SEND_EVERY_S)
        assert not file.exists()
        empty_store(file)
    sender.close()
    assert outbox.waiting == 0
