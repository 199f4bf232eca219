"""What it means that MLflow did not take something: that it is away, that it waits for a person, or that it refuses."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal, TypeAlias

from mlflow.exceptions import MlflowException
from requests import HTTPError

Meaning: TypeAlias = Literal["away", "denied", "deleted", "refused", "unknown"]
"""away: send it again. denied: again once a person has mended password or rights. deleted: the run is, or its
experiment, and takes it when it is restored. refused: it would be refused again. unknown: may be either."""

PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
"""Answers that blame the request and mean the moment."""


def meaning_of(error: Exception) -> Meaning:
    """Return what an error of MLflow's client means."""
    if isinstance(error, MlflowException):
        deleted = "must be in the 'active' state" in str(error)
        return "deleted" if deleted else _meaning_of_status(error.get_http_status_code())
    if isinstance(error, HTTPError) and error.response is not None:  # artifacts travel past MLflow's own errors
        return _meaning_of_status(error.response.status_code)
    if isinstance(error, FileNotFoundError | KeyError):  # a checkpoint that someone removed, a run that was refused
        return "refused"
    return "away" if isinstance(error, OSError) else "unknown"  # broken connections, full disks


def _meaning_of_status(status: int) -> Meaning:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return "denied"
    return "away" if status in PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR else "refused"
