"""Empty databases of MLflow. MLflow itself takes seconds to make one, so each node does it once."""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

from mlflow.tracking import MlflowClient

from gaudi_tune.base.node_cache import prepare_once

FILE = "mlflow.db"


def empty_store(file: Path) -> str:
    """Write an empty database to a file, and return its address."""
    made = prepare_once("empty-mlflow-store", {"mlflow": version("mlflow")}, _make)
    shutil.copy(made / FILE, file)
    return f"sqlite:///{file}"


def _make(folder: Path) -> None:
    MlflowClient(f"sqlite:///{folder / FILE}").search_experiments()
