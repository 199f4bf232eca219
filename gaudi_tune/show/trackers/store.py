"""Where MLflow's tracking store is, and whether it answers.

MLflow takes seconds to import, and is imported in functions: planning a sweep with a local store does without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.options import HOME

STORE = HOME / "mlflow" / "store"
"""Default tracking store: an SQLite file and a folder of artifacts."""
STORE_URI = f"sqlite:///{STORE / 'mlflow.db'}"
SQLITE = "sqlite:///"
IN_MEMORY = ("sqlite://", "sqlite:///", "sqlite:///:memory:")
"""Addresses of databases that SQLite keeps in memory."""
ANSWER_WITHIN_S = 8
"""How long a tracking server may take to answer the check before a sweep."""

DATABASES = ("postgresql", "mysql", "mssql")

LOGGED_BY = "logged_by"
"""The tag that is written to an MLflow experiment to see whether a user may log there."""

PASSWORD_OF_USER = re.compile(r"[^:/@]*:[^@]*@")
"""How the rest of a database's address begins that holds a password, as SQLAlchemy reads it: '/' may be part of it."""
PASSWORD_IN_QUERY = re.compile(r"(password|passwd|passphrase|pwd|token|secret)[^&;=]*=", re.IGNORECASE)
"""Names of what is secret among the parameters of a database's address, or among those inside of one."""


def tracking_uri(given: str | None) -> str:
    """Return the tracking address: the one given, else $MLFLOW_TRACKING_URI, else the default store.

    One that holds a password or a token, which would go to terminals, logs and files, is a SweepError, and so is a
    database in memory.
    """
    uri = given or os.environ.get("MLFLOW_TRACKING_URI") or STORE_URI
    if uri.partition("?")[0] in IN_MEMORY:
        raise SweepError(
            f"--tracking-uri {uri}: this database is in memory and ends with the process; give a file, such as "
            f"{STORE_URI}"
        )
    scheme, _, rest = uri.partition("://")
    shown = f"--tracking-uri {scheme}://***: an address is shown and kept"
    if scheme.lower() in ("http", "https"):
        # A user without a password may be a token, and so may what follows '?' or '#'; a server's address needs none.
        if re.search("[@?#]", rest):
            raise SweepError(
                f"{shown}, and must not hold a password or a token: nothing with '@', '?' or '#'; set "
                f"MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
            )
    elif PASSWORD_OF_USER.match(rest) or PASSWORD_IN_QUERY.search(unquote(rest.partition("?")[2])):
        raise SweepError(
            f"{shown}, and must not hold a password, neither after the user nor after '?'; leave it to the database's "
            f"own means, for PostgreSQL PGPASSWORD or ~/.pgpass"
        )
    return uri


def database_file(uri: str) -> Path | None:
    """Return the file of a tracking store that is a database in a file; None for any other."""
    return Path(unquote(uri.removeprefix(SQLITE).partition("?")[0])) if uri.startswith(SQLITE) else None


def artifacts_of(uri: str, experiment: str) -> str | None:
    """Return where a new MLflow experiment has its artifacts: beside the database in a file, where MLflow would take
    the current folder; None: where another store puts them."""
    file = database_file(uri)
    return None if file is None else str(file.resolve().parent / "artifacts" / experiment)


def check_tracking(uri: str, experiment: str) -> None:
    """See that a tracking server or its database answers within 10 s, and takes runs of ``experiment``.

    On a server this writes a tag to the experiment, where it exists: with passwords, many may read and few may write.
    """
    from mlflow.tracking import MlflowClient
    from sqlalchemy import create_engine

    # Each kind of store fails in its own way: HTTP, SQL, an unknown scheme.
    with _asked_once(f"--tracking-uri {uri}", f"log to the experiment {experiment!r}"):
        if uri.startswith(DATABASES):  # MLflow itself would try for minutes to open it
            engine = create_engine(uri)
            engine.connect().close()
            engine.dispose()
        client = MlflowClient(uri)
        known = client.get_experiment_by_name(experiment)
        if known is not None and known.lifecycle_stage == "active" and uri.startswith("http"):
            client.set_experiment_tag(known.experiment_id, LOGGED_BY, "gaudi-tune")
    if known is not None and known.lifecycle_stage == "deleted":
        raise SweepError(
            f"--tracking-uri {uri}: the MLflow experiment {experiment!r} was deleted there; bring it back with: "
            f"mlflow experiments restore --experiment-id {known.experiment_id}"
        )


def check_registry(uri: str, name: str) -> None:
    """See that the model registry takes versions of a model of this name.

    On a server this writes a tag to the registered model, where it exists: others than who made it may only read it.
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
    with _asked_once(f"--register {name}", f"change the registered model {name!r}"):
        try:
            if uri.startswith("http"):
                MlflowClient(uri).set_registered_model_tag(name, LOGGED_BY, "gaudi-tune")
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":  # it is made when the sweep ends
                raise


@contextmanager
def _asked_once(option: str, wanted: str) -> Iterator[None]:
    """Let MLflow's requests fail at once where nobody answers, instead of being repeated for minutes.

    What fails is a SweepError of the option, whose store refuses what was wanted.
    """
    from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_HTTP_REQUEST_TIMEOUT

    limits = {MLFLOW_HTTP_REQUEST_MAX_RETRIES: 0, MLFLOW_HTTP_REQUEST_TIMEOUT: ANSWER_WITHIN_S}
    before = {variable: os.environ.get(variable.name) for variable in limits}
    for variable, value in limits.items():
        variable.set(value)
    try:
        yield
    except Exception as error:
        raise SweepError(f"{option}: {_what_is_wrong(error, wanted)}") from error
    finally:
        for variable, kept in before.items():
            variable.unset() if kept is None else variable.set(kept)


def _what_is_wrong(error: Exception, wanted: str) -> str:
    """Say what a store's refusal of what was wanted means, and what to do."""
    from mlflow.exceptions import MlflowException

    status = error.get_http_status_code() if isinstance(error, MlflowException) else None
    user = os.environ.get("MLFLOW_TRACKING_USERNAME")
    who = f"the user {user!r}" if user else "requests without a user"
    if status == HTTPStatus.UNAUTHORIZED:
        return (
            f"MLflow there wants a user and the right password, and does not take {who} (HTTP 401). Set "
            f"MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD to those that its administrator gave you."
        )
    if status == HTTPStatus.FORBIDDEN and "Invalid Host" in str(error):
        return (
            "MLflow there does not go by this name (HTTP 403, Invalid Host header). Add host and port of the address "
            "to MLFLOW_SERVER_ALLOWED_HOSTS of the server."
        )
    if status == HTTPStatus.FORBIDDEN:
        return (
            f"MLflow there does not let {who} {wanted} (HTTP 403). Have its administrator "
            f"grant EDIT on it (mlflow/README.md says how), or set MLFLOW_TRACKING_USERNAME and "
            f"MLFLOW_TRACKING_PASSWORD to a user who has it."
        )
    first_line = str(error).strip().split("\n", maxsplit=1)[0]
    _, of_chain, cause = first_line.rpartition("(Caused by ")  # urllib3's, of 350 characters
    first_line = cause.rpartition(": ")[2].rstrip("')\"") if of_chain else first_line
    return (
        f"no MLflow tracking store answers there ({first_line}). Start it, correct the address, or leave the option "
        f"and $MLFLOW_TRACKING_URI out for the local store."
    )
