"""What this project uses of MLflow that MLflow does not promise to keep."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_GIT_COMMIT

from gaudi_tune.private import mlflow as internals
from gaudi_tune.show.trackers.sweep_entries import GIT_COMMIT
from tests.helpers.mlflow_store import empty_store


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> MlflowClient:
    return MlflowClient(empty_store(tmp_path_factory.mktemp("store") / "mlflow.db"))


@pytest.mark.parametrize("name", ["a/b", "a:b", "", ".."])
def test_a_name_that_the_registry_would_refuse_is_refused_beforehand(client: MlflowClient, name: str) -> None:
    """MLflow refuses "" in each version, and the others from 3.11 on."""
    internals.validate_model_name("bert-best")
    try:
        internals.validate_model_name(name)
    except MlflowException:
        with pytest.raises(MlflowException):
            client.create_registered_model(name)
    else:
        assert client.create_registered_model(name).name == name


def test_a_store_says_in_these_words_that_a_run_or_an_experiment_was_deleted(client: MlflowClient) -> None:
    experiment = client.create_experiment("deleted")
    run = client.create_run(experiment).info.run_id
    client.delete_run(run)
    with pytest.raises(MlflowException) as of_run:
        client.log_metric(run, "score", 0.5)
    client.delete_experiment(experiment)
    with pytest.raises(MlflowException) as of_experiment:
        client.create_run(experiment)
    with pytest.raises(MlflowException) as of_none:
        client.log_metric("f" * 32, "score", 0.5)
    assert [internals.says_deleted(caught.value) for caught in (of_run, of_experiment, of_none)] == [True, True, False]


def test_a_new_store_is_logged_by_this_logger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("mlflow"), "propagate", True)  # MLflow 3.5 sets it to False
    with caplog.at_level(logging.INFO, internals.DATABASE_LOGGER):
        MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}").search_experiments()
    assert internals.DATABASE_LOGGER in {record.name for record in caplog.records}


def test_mlflows_pages_know_these_tags() -> None:
    assert internals.MLFLOW_PARENT_RUN_ID == "mlflow.parentRunId"
    assert GIT_COMMIT == MLFLOW_GIT_COMMIT
    assert internals.MLFLOW_MODEL_VERSIONS == "mlflow.modelVersions"


@pytest.mark.parametrize("name", [internals.DATABASE_LOGGER, internals.PYFUNC_LOGGER])
def test_loggers_have_the_names_of_modules(name: str) -> None:
    assert importlib.import_module(name)._logger.name == name
