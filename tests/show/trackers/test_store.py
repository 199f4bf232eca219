"""Tracking addresses: those with a secret are refused without repeating it, and so are those where nobody answers."""

from __future__ import annotations

import time

import pytest

from gaudi_tune.base.errors import SweepError
from gaudi_tune.show.trackers.store import STORE, STORE_URI, artifact_folder, check_tracking, tracking_uri
from tests.helpers.deliveries import free_port

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
    ],
)
def test_other_addresses_are_taken(uri: str) -> None:
    assert tracking_uri(uri) == uri


def test_a_database_server_that_is_not_there_is_refused_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(SweepError, match=r"no MLflow tracking store answers there \(.+\)\. Start it, correct the"):
        check_tracking(f"postgresql+psycopg2://ada@127.0.0.1:{free_port()}/mlflow", "quadratic")
    assert time.monotonic() - began < 10


def test_a_database_in_a_file_has_its_artifacts_beside_it() -> None:
    assert artifact_folder("sqlite:////data/of%20us/mlflow.db?timeout=5", "bert") == "/data/of us/artifacts/bert"
    assert artifact_folder(STORE_URI, "bert") == str(STORE / "artifacts" / "bert")
    assert artifact_folder("http://team:5000", "bert") is None, "the server says where"


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///:memory:", "sqlite:///", "sqlite:///:memory:?cache=shared"])
def test_a_database_in_memory_is_no_store(uri: str) -> None:
    with pytest.raises(SweepError, match=r"is in memory and ends with the process; give a file, such as sqlite:///"):
        tracking_uri(uri)
