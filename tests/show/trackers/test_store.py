"""Tracking addresses: those with a secret are refused without repeating it, and so are those where nobody answers."""

from __future__ import annotations

import time
from pathlib import Path

import mlflow
import pytest
from ray.air.integrations.mlflow import setup_mlflow
from ray.train.v2._internal.execution import train_fn_utils

from gaudi_tune import SweepOptions
from gaudi_tune.base.errors import SweepError
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.private.ray_train import answered_by
from gaudi_tune.show.trackers.store import (
    STORE,
    STORE_URI,
    artifact_folder,
    check_tracking,
    tracking_uri,
    variables_of_runs,
)
from tests.helpers.deliveries import free_port
from tests.helpers.quadratic import QUADRATIC

SECRET = "hUsh"


@pytest.mark.parametrize(
    "uri",
    [
        "https://ada:hUsh@host:5000",
        "https://hUsh@host",
        "https://hUsh:@host/mlflow",
        "HTTP://ada:hU/hUsh@host",
        "https://host/?token=hUsh",
        "https://host/mlflow#hUsh",
    ],
)
def test_a_server_s_address_with_a_secret_is_refused(uri: str) -> None:
    with pytest.raises(SweepError, match=r"MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN$") as raised:
        tracking_uri(uri)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://mlflow:hUsh@host/db",
        "postgresql+psycopg2://mlflow:h/hUsh#x?y@host/db",
        "postgresql+psycopg2://db/x?user=u&password=hUsh",
        "postgresql://u@db/x?sslkey=client.key&sslpassword=hUsh",
        "mysql+pymysql://u@db/x?passwd=hUsh",
        "mssql+pyodbc:///?odbc_connect=DRIVER%3DODBC%3BUID%3Dada%3BPWD%3DhUsh",
    ],
)
def test_a_database_s_address_with_a_secret_is_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(SweepError, match=r"PGPASSWORD or ~/\.pgpass$") as raised:
        tracking_uri(None)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "uri",
    [
        STORE_URI,
        "http://127.0.0.1:5000",
        "https://host/mlflow/",
        "postgresql://mlflow@host/db",
        "postgresql+psycopg2://",
        "postgresql://mlflow@host:5432/db?sslmode=require&passfile=/home/ada/.pgpass&user=ada",
        "sqlite:////data/a:b@c/mlflow.db",
        "databricks://profile",
        "./mlruns",
        "sqlite:////home/me/memory/mlflow.db",
        "sqlite:////runs/mode=memory,lr=0.1/mlflow.db",
        "sqlite:///a.db?timeout=30",
        "sqlite:///file:/x/m.db?mode=rw&uri=true",
    ],
)
def test_other_addresses_are_taken(uri: str) -> None:
    assert tracking_uri(uri) == uri


def test_a_train_loop_s_own_runs_are_in_the_sweep_s_experiment_unless_variables_name_another(
    storage: Path, tracking_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(QUADRATIC, SweepOptions(storage=storage, name="x", device="cpu"))
    if mlflow.get_experiment_by_name(plan.experiment.name) is None:  # as the sweep does
        mlflow.create_experiment(plan.experiment.name)
    for name, value in variables_of_runs(plan).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(train_fn_utils, "_train_fn_utils", train_fn_utils.LocalTrainFnUtils(""))
    with answered_by(lambda *said: None, lambda: None, plan.folder / "trial-001"):
        setup_mlflow({"x": 0.5}).log_metric("loss", 0.25)
    run = mlflow.active_run()
    assert run is not None
    mlflow.end_run()
    assert mlflow.get_experiment(run.info.experiment_id).name == plan.experiment.name
    assert mlflow.get_run(run.info.run_id).data.metrics == {"loss": 0.25}
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "7")  # as mlflow.set_experiment() does
    assert variables_of_runs(plan) == {"MLFLOW_TRACKING_URI": tracking_store, "MLFLOW_EXPERIMENT_ID": "7"}


def test_a_database_server_that_is_not_there_is_refused_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(SweepError, match=r"no MLflow tracking store answers there \(.+\)\. Start it, correct the"):
        check_tracking(f"postgresql+psycopg2://ada@127.0.0.1:{free_port()}/mlflow", "quadratic")
    assert time.monotonic() - began < 60, "MLflow itself tries for 102 s"


def test_a_database_in_a_file_has_its_artifacts_beside_it() -> None:
    assert artifact_folder("sqlite:////data/of%20us/mlflow.db?timeout=5", "bert") == "/data/of us/artifacts/bert"
    assert artifact_folder(STORE_URI, "bert") == str(STORE / "artifacts" / "bert")
    assert artifact_folder("http://team:5000", "bert") is None, "the server says where"


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite://", "sqlite:///:memory:", "sqlite:///", "sqlite:///:memory:?cache=shared", "sqlite+pysqlite://",
        "sqlite+pysqlite:///:memory:", "sqlite:///file::memory:?uri=true", "sqlite:///file:x?mode=memory&uri=true",
        "SQLite:///?timeout=5", "sqlite:///file:%3Amemory%3A?uri=true",
    ],
)  # fmt: skip
def test_a_database_in_memory_is_no_store(uri: str) -> None:
    with pytest.raises(SweepError, match=r"is in memory and ends with the process; give a file, such as sqlite:///"):
        tracking_uri(uri)
