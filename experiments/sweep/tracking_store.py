"""Where MLflow's tracking store is, and whether it answers."""

from __future__ import annotations

import logging
import os

from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_HTTP_REQUEST_TIMEOUT
from mlflow.tracking import MlflowClient

from experiments.sweep.errors import SweepError
from experiments.sweep.options import PROJECT_ROOT

STORE = PROJECT_ROOT / "mlflow" / "store"
"""Default tracking store: an SQLite file and a folder of artifacts."""
STORE_URI = f"sqlite:///{STORE / 'mlflow.db'}"
ANSWER_WITHIN_S = 8
"""How long a tracking server may take to answer the check before a sweep."""


def tracking_uri(given: str | None) -> str:
    """Return the tracking address: the one given, else $MLFLOW_TRACKING_URI, else the default store."""
    return given or os.environ.get("MLFLOW_TRACKING_URI") or STORE_URI


def check_tracking(uri: str, experiment: str) -> None:
    """See that the tracking store answers, and takes runs of ``experiment``.

    Raises:
        SweepError: It does not answer within 10 s, or the experiment was deleted there.
    """
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it tells of every table it makes
    if uri == STORE_URI:
        STORE.mkdir(parents=True, exist_ok=True)
    kept = {v: os.environ.get(v.name) for v in (MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_HTTP_REQUEST_TIMEOUT)}
    MLFLOW_HTTP_REQUEST_MAX_RETRIES.set(0)
    MLFLOW_HTTP_REQUEST_TIMEOUT.set(ANSWER_WITHIN_S)
    try:
        known = MlflowClient(uri).get_experiment_by_name(experiment)
    except Exception as error:
        # Each kind of store fails in its own way: HTTP, SQL, a file, an unknown scheme.
        first_line = str(error).strip().split("\n", maxsplit=1)[0]
        raise SweepError(
            f"--tracking-uri {uri}: no MLflow tracking store answers there ({first_line}). Start it, correct the "
            f"address, or leave the option and $MLFLOW_TRACKING_URI out for the local store."
        ) from error
    finally:
        for variable, value in kept.items():
            variable.unset() if value is None else variable.set(value)
    if known is not None and known.lifecycle_stage == "deleted":
        raise SweepError(
            f"--tracking-uri {uri}: the MLflow experiment {experiment!r} was deleted there; bring it back with: "
            f"mlflow experiments restore --experiment-id {known.experiment_id}"
        )
