"""Storage and tracking stores that cannot be used: each a clear error before anything is written."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import mlflow
import pytest

from gaudi_tune import SweepError, SweepOptions
from gaudi_tune.plan.places import check_store
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.trackers import store
from tests.helpers.mlflow_store import empty_store
from tests.helpers.planned_bert import plan_for
from tests.helpers.quadratic import QUADRATIC


def test_a_storage_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SweepError, match=r"--storage .*/file/results: this is not a folder: .*/file; give"):
        plan_for(tmp_path / "file" / "results")


def test_a_name_in_use_is_an_error(storage: Path) -> None:
    (storage / "old").mkdir(parents=True)
    with pytest.raises(SweepError, match=r"--name old: .*/old exists and is no sweep; take another name, or remove it"):
        plan_for(storage, name="old")
    (storage / "old" / "sweep.json").touch()
    with pytest.raises(SweepError, match=r"--name old: an unfinished sweep has this name .*resume it"):
        plan_for(storage, name="old")
    (storage / "old" / "summary.json").write_text('{"version": 2, "complete": true, "counts": {}, "best": null}')
    with pytest.raises(SweepError, match="--name old: a finished sweep has this name"):
        plan_for(storage, name="old")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("missing/mlflow.db", r"/missing is not a folder; make it, or give another address"),
        ("file/mlflow.db", r"this is not a folder: .*/file; give"),
        ("folder", r"/folder cannot be read as a database of MLflow \(unable to open database file\)"),
        ("torn.db", r"/torn\.db cannot be read as a database of MLflow \(file is not a database\)"),
    ],
)
def test_a_local_store_that_cannot_be_opened_is_an_error_at_once(
    place: str, message: str, storage: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "torn.db").write_text("no database" * 100)
    began = time.monotonic()
    with pytest.raises(SweepError, match=f"--tracking-uri sqlite:///{tmp_path}/{place}: .*{message}"):
        make_plan(QUADRATIC, SweepOptions(storage=storage, tracking_uri=f"sqlite:///{tmp_path}/{place}"))
    assert time.monotonic() - began < 60, "MLflow itself tries for 102 s"


def test_a_store_whose_writer_was_killed_is_read_as_it_was_before(storage: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)) as database:
        database.execute("CREATE TABLE experiments (experiment_id, name, lifecycle_stage)")
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN")
        rows = ((number, "quadratic", "deleted") for number in range(5000))
        database.executemany("INSERT INTO experiments VALUES (?, ?, ?)", rows)  # more than the cache: it is in the file
        (tmp_path / "killed").mkdir()
        for file in ("mlflow.db", "mlflow.db-journal"):
            shutil.copy(tmp_path / file, tmp_path / "killed" / file)
    make_plan(QUADRATIC, SweepOptions(storage=storage, tracking_uri=f"sqlite:///{tmp_path}/killed/mlflow.db"))


@pytest.fixture
def mute_server() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_tracking_server_that_does_not_answer_is_an_error(
    mute_server: str, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.ANSWER_WITHIN_S < 10
    monkeypatch.setattr(store, "ANSWER_WITHIN_S", 1)
    with pytest.raises(SweepError, match=f"--tracking-uri {mute_server}: no MLflow tracking store answers there"):
        plan_for(storage, tracking_uri=mute_server)
    assert "MLFLOW_HTTP_REQUEST_TIMEOUT" not in os.environ


def test_an_experiment_deleted_in_mlflow_is_an_error(storage: Path, tmp_path: Path) -> None:
    client = mlflow.MlflowClient(uri := empty_store(tmp_path / "deleted.db"))
    client.delete_experiment(client.create_experiment("bert"))
    with pytest.raises(SweepError, match="'bert' was deleted there; bring it back with: mlflow experiments restore"):
        plan_for(storage, tracking_uri=uri)


def test_a_database_of_another_mlflow_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "old.db")) as database:
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        database.execute("INSERT INTO alembic_version VALUES ('cc1f77228345')")
        database.commit()
    uri = f"sqlite:///{tmp_path / 'old.db'}"
    with pytest.raises(SweepError, match=rf"\(version cc1f77228345\).* run mlflow db upgrade {uri}, or install"):
        check_store(uri, "bert")
