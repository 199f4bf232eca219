"""MLflow's own word on the version of a database is what its files say."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import OperationalError

from gaudi_tune.private.mlflow_schema import VERSION_QUERY, latest_version
from tests.helpers.mlflow_store import empty_store


def test_a_new_database_has_the_latest_version_and_mlflow_refuses_an_earlier_one(tmp_path: Path) -> None:
    uri = empty_store(tmp_path / "mlflow.db")
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        assert database.execute(VERSION_QUERY).fetchall() == [(latest_version(),)]
        database.execute("UPDATE alembic_version SET version_num = 'cc1f77228345'")  # of MLflow 1.28
    # MLflow 3.5 begins to upgrade it, which fails here, because only the number was set back.
    with pytest.raises((MlflowException, OperationalError), match=r"mlflow db upgrade|already exists|duplicate column"):
        MlflowClient(uri).search_experiments()
