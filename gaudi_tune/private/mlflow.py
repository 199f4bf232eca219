"""MLflow's client: names of models and tags, the meaning of an error, and its noisy loggers."""

from __future__ import annotations

from contextlib import suppress

from mlflow.exceptions import MlflowException

from gaudi_tune.private.surfaces import part

# Tags with which MLflow's pages nest runs and show models. No public module has them.
MLFLOW_MODEL_VERSIONS, MLFLOW_PARENT_RUN_ID = "mlflow.modelVersions", "mlflow.parentRunId"
with suppress(ImportError):
    from mlflow.utils.validation import _validate_model_name

DATABASE_LOGGER = "mlflow.store.db.utils"
"""A logger with a line for each table that is created in a new store. No setting of MLflow silences a single module."""
PYFUNC_LOGGER = "mlflow.pyfunc"
"""A logger of what happens while a model is saved."""


@part("mlflow-names", lambda name: None)
def validate_model_name(name: str) -> None:
    """Check a name for the model registry. Publicly it is checked only when the model is registered, after the sweep.

    Raises:
        MlflowException: MLflow does not accept this name.
    """
    _validate_model_name(name)


def says_deleted(error: MlflowException) -> bool:
    """Whether a store refused because the run or its experiment was deleted. The error's code does not tell."""
    return "must be in the 'active' state" in str(error)
