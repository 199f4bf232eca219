"""The address of MLflow's tracking store, and checks that it answers.

Functions import MLflow, which takes seconds: planning a sweep with a local store does not need it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote

from gaudi_tune.base.errors import SweepError, first_line
from gaudi_tune.base.process import changed_environment
from gaudi_tune.define.options import HOME
from gaudi_tune.define.sweep_plan import Plan

STORE = HOME / "mlflow" / "store"
"""The default tracking store: an SQLite file and a folder of artifacts."""
STORE_URI = f"sqlite:///{STORE / 'mlflow.db'}"
SQLITE = "sqlite:///"
IN_MEMORY = re.compile(r"sqlite(\+\w+)?:///?(\?.*)?|sqlite.*(:memory:|\?.*mode=memory).*", re.IGNORECASE)
"""Matches addresses of databases that SQLite keeps in memory."""
ANSWER_WITHIN_S = 8
"""How long a tracking server may take to answer the check before a sweep."""

MLFLOW_UI = "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false mlflow ui --workers 1"
"""The command that opens MLflow's page, as ``make ui`` does: with one process, and without one for jobs."""
DATABASES = ("postgresql", "mysql", "mssql")

LOGGED_BY = "logged_by"
"""The tag that the check writes to an MLflow experiment to see whether a user may log there."""

USER_WITH_PASSWORD = re.compile(r"[^:/@]*:[^@]*@")
"""Matches the beginning of a database's address, after its scheme, if that holds a password. SQLAlchemy allows '/' in
it."""
PASSWORD_IN_QUERY = re.compile(r"(password|passwd|passphrase|pwd|token|secret)[^&;=]*=", re.IGNORECASE)
"""Matches secret parameters of a database's address, also inside the value of another parameter."""


def tracking_uri(option: str | None) -> str:
    """Return the tracking address: that of the option, else $MLFLOW_TRACKING_URI, else the default store.

    Raises a SweepError if it holds a password or a token, which would go to terminals, logs and files, or if it is a
    database in memory.
    """
    uri = option or os.environ.get("MLFLOW_TRACKING_URI") or STORE_URI
    if IN_MEMORY.fullmatch(unquote(uri)):
        raise SweepError(
            f"--tracking-uri {uri}: this database is in memory and ends with the process; give a file, such as "
            f"{STORE_URI}"
        )
    scheme, _, rest = uri.partition("://")
    problem = f"--tracking-uri {scheme}://***: an address is shown and kept"
    if scheme.lower() in ("http", "https"):
        # A user without a password may be a token, as may the text after '?' or '#'. A server's address needs neither.
        if re.search("[@?#]", rest):
            raise SweepError(
                f"{problem}, and must not hold a password or a token: nothing with '@', '?' or '#'; set "
                f"MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
            )
    elif USER_WITH_PASSWORD.match(rest) or PASSWORD_IN_QUERY.search(unquote(rest.partition("?")[2])):
        raise SweepError(
            f"{problem}, and must not hold a password, neither after the user nor after '?'; leave it to the "
            f"database's own means, for PostgreSQL PGPASSWORD or ~/.pgpass"
        )
    return uri


def variables_of_runs(plan: Plan) -> dict[str, str]:
    """Return variables by which MLflow runs that a train loop starts are where this process would start them, or else
    beside those of the sweep.

    ``mlflow.set_experiment()`` sets one here, and a Ray that runs already does not pass it on. Without an experiment,
    ``ray.air.integrations.mlflow.setup_mlflow()`` fails.
    """
    names = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME")
    variables = {name: os.environ[name] for name in names if name in os.environ}
    if not variables.keys() & {*names[1:]}:
        variables["MLFLOW_EXPERIMENT_NAME"] = plan.experiment.name
    return {"MLFLOW_TRACKING_URI": plan.tracking_uri, **variables}


def how_to_open(uri: str) -> str:
    """Return the command that opens MLflow's page on a tracking store; "" for a server, which has a page already."""
    return "" if uri.startswith("http") else f"{MLFLOW_UI} --backend-store-uri {shlex.quote(uri)}"


def database_file(uri: str) -> Path | None:
    """Return the file of a tracking store that is a database in a file; None for any other store."""
    return Path(unquote(uri.removeprefix(SQLITE).partition("?")[0])) if uri.startswith(SQLITE) else None


def artifact_folder(uri: str, experiment: str) -> str | None:
    """Return the artifact folder for a new MLflow experiment, or None to let the store decide.

    With a database in a file it is beside that file. MLflow itself would choose the current folder.
    """
    file = database_file(uri)
    return None if file is None else str(file.resolve().parent / "artifacts" / experiment)


def check_tracking(uri: str, experiment: str) -> None:
    """Check that a tracking server or its database answers within 10 s, and accepts runs of ``experiment``.

    If the experiment exists on a server, this writes a tag to it: a user may be allowed to read but not to write.
    """
    from mlflow.tracking import MlflowClient
    from sqlalchemy import create_engine

    with _without_retries(f"--tracking-uri {uri}", f"log to the experiment {experiment!r}"):
        if uri.startswith(DATABASES):  # MLflow itself would retry for minutes
            engine = create_engine(uri)
            engine.connect().close()
            engine.dispose()
        client = MlflowClient(uri)
        existing = client.get_experiment_by_name(experiment)
        if existing is not None and existing.lifecycle_stage == "active" and uri.startswith("http"):
            client.set_experiment_tag(existing.experiment_id, LOGGED_BY, "gaudi-tune")
    if existing is not None and existing.lifecycle_stage == "deleted":
        raise SweepError(
            f"--tracking-uri {uri}: the MLflow experiment {experiment!r} was deleted there; bring it back with: "
            f"mlflow experiments restore --experiment-id {existing.experiment_id}"
        )


def check_registry(uri: str, name: str) -> None:
    """Check that the model registry accepts versions of a model of this name.

    If the model exists on a server, this writes a tag to it: other users than its creator may only read it.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    from gaudi_tune.private.mlflow import validate_model_name

    try:
        validate_model_name(name)
    except MlflowException as error:
        raise SweepError(
            f"--register {name}: MLflow does not take this name ({str(error).rstrip('.')}); give one without '/' and "
            f"':', not empty, that is no path such as '..'"
        ) from error
    with _without_retries(f"--register {name}", f"change the registered model {name!r}"):
        try:
            if uri.startswith("http"):
                MlflowClient(uri).set_registered_model_tag(name, LOGGED_BY, "gaudi-tune")
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":  # the sweep makes it at its end
                raise


@contextmanager
def _without_retries(option: str, action: str) -> Iterator[None]:
    """Let MLflow's requests fail at once if nobody answers, instead of repeating them for minutes.

    Any error becomes a SweepError of the option, which says that the store refuses the ``action``.
    """
    limits = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": str(ANSWER_WITHIN_S)}
    with changed_environment(limits):
        try:
            yield
        except Exception as error:  # each kind of store fails in its own way: HTTP, SQL, an unknown scheme
            raise SweepError(f"{option}: {_explain(error, action)}") from error


def _explain(error: Exception, action: str) -> str:
    """Return what a store's refusal of an action means, and what to do."""
    from mlflow.exceptions import MlflowException

    status = error.get_http_status_code() if isinstance(error, MlflowException) else None
    if status == HTTPStatus.FORBIDDEN and "Invalid Host" in str(error):
        return (
            "MLflow there does not go by this name (HTTP 403, Invalid Host header). Add host and port of the address "
            "to MLFLOW_SERVER_ALLOWED_HOSTS of the server."
        )
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        user = os.environ.get("MLFLOW_TRACKING_USERNAME")
        client = f"the user {user!r}" if user else "requests without a user"
        return (
            f"MLflow there does not let {client} {action} (HTTP {status}). Set MLFLOW_TRACKING_USERNAME and "
            f"MLFLOW_TRACKING_PASSWORD to those of a user who may, or have its administrator grant EDIT on it "
            f"(mlflow/README.md says how)."
        )
    return (
        f"no MLflow tracking store answers there ({first_line(error)}). Start it, correct the address, or leave the "
        f"option and $MLFLOW_TRACKING_URI out for the local store."
    )
