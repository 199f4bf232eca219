"""MLflow's client: names of models and tags, what an error means, the loggers that say too much, and several calls in
one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

# The tags by which MLflow's pages nest runs and show commit and models; no public module has them.
from mlflow.utils.mlflow_tags import MLFLOW_GIT_COMMIT, MLFLOW_MODEL_VERSIONS, MLFLOW_PARENT_RUN_ID
from mlflow.utils.validation import _validate_model_name

__all__ = [
    "DATABASE_LOGGER",
    "MLFLOW_GIT_COMMIT",
    "MLFLOW_MODEL_VERSIONS",
    "MLFLOW_PARENT_RUN_ID",
    "PYFUNC_LOGGER",
    "in_one_transaction",
    "says_deleted",
    "validate_model_name",
]

DATABASE_LOGGER = "mlflow.store.db.utils"
"""Logs a line for each table that it makes in a new store. No setting of MLflow quiets one module."""
PYFUNC_LOGGER = "mlflow.pyfunc"
"""Logs what it does while a model is saved."""


def validate_model_name(name: str) -> None:
    """Check a name for the model registry. Publicly it is checked only when the model is registered, after the sweep.

    Raises:
        MlflowException: MLflow does not take this name.
    """
    _validate_model_name(name)


def says_deleted(error: MlflowException) -> bool:
    """Whether a store refused because the run, or its experiment, was deleted; the error's code only says "wrong"."""
    return "must be in the 'active' state" in str(error)


@contextmanager
def in_one_transaction(client: MlflowClient) -> Iterator[None]:
    """Have a client of a database make the calls in the block in one session; that of a server makes them as ever.

    For a new run alone: MLflow rolls the session back where a value is there already. Publicly each call opens two to
    four sessions, each with settings, a look-up of the run and a commit that waits for the disk.
    """
    store = client._tracking_client.store
    make_session = getattr(store, "ManagedSessionMaker", None)
    if make_session is None:
        yield
        return
    with make_session(read_only=False) as session:

        @contextmanager
        def same_session(read_only: bool = True) -> Iterator[Any]:
            yield session
            session.flush()

        store.ManagedSessionMaker = same_session
        try:
            yield
        finally:
            store.ManagedSessionMaker = make_session
