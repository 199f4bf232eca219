"""MLflow's client: the name of a tag, the meaning of an error, and loggers that say too much."""

from __future__ import annotations

from contextlib import suppress

from mlflow.exceptions import MlflowException

# Tags with which MLflow's pages nest runs and show models. No public module has them.
MLFLOW_PARENT_RUN_ID = "mlflow.parentRunId"
with suppress(ImportError):
    pass

DATABASE_LOGGER = "mlflow.store.db.utils"
"""A logger with a line for each table that is created in a new store. No setting of MLflow silences a single module."""
PYFUNC_LOGGER = "mlflow.pyfunc"
"""A logger of what happens while a model is saved."""


def says_deleted(error: MlflowException) -> bool:
    """Whether a store refused because the run or its experiment was deleted. The error's code does not tell."""
    return "must be in the 'active' state" in str(error)
