"""Checking the places to which a sweep writes: its folder, its tracking store and the model registry.

The checks only read. What cannot work raises a SweepError.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.private.mlflow_schema import VERSION_QUERY, VERSION_TABLE, latest_version
from gaudi_tune.show.trackers.store import STORE_URI, check_registry, check_tracking, database_file

LOCKED_FOR_S = 5.0
"""How long a check waits for a database that another process writes to."""


def check_places(experiment: Experiment, options: SweepOptions, uri: str, name: str) -> None:
    """Check that the files of a sweep can be written, and that it can be tracked at this address."""
    storage = options.storage.expanduser()
    _check_writable(storage, f"--storage {storage}")
    if options.resume is not None:
        _check_writable(storage / name, f"--resume {options.resume}")
    check_store(uri, experiment.name)
    if options.register is None:
        return
    if experiment.predictor is None:
        raise SweepError(
            f"--register {options.register}: the experiment {experiment.name} has no model to register, since it does "
            f"not say how to predict; give it a predictor (docs/own-model.md), or leave the option out"
        )
    check_registry(uri, options.register)


def _check_writable(folder: Path, option: str) -> None:
    """Check that a folder exists or can be made, and that files can be made in it."""
    existing = folder
    while not os.path.lexists(existing):
        existing = existing.parent
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        problem = "you may not write to" if existing.is_dir() else "this is not a folder:"
        raise SweepError(f"{option}: {problem} {existing}; give a folder in which you may write")


def check_store(uri: str, experiment: str) -> None:
    """Check that the tracking store answers within 10 s and takes runs of the experiment.

    A local database is read directly, which is faster than through MLflow.
    """
    file, option = database_file(uri), f"--tracking-uri {uri}"
    if file is None:
        check_tracking(uri, experiment)
        return
    _check_writable(file.parent, option)
    if not file.parent.exists() and uri != STORE_URI:  # the sweep makes the folder of the default store
        raise SweepError(f"{option}: {file.parent} is not a folder; make it, or give another address")
    if not file.exists():  # MLflow makes it
        return
    try:
        # Not mode=ro: the first reader after a killed writer must be able to roll its transaction back.
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=rw", uri=True, timeout=LOCKED_FOR_S)) as database:
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            versions = database.execute(VERSION_QUERY) if VERSION_TABLE in tables else ()
            version = next((row[0] for row in versions), None)
            query = "SELECT experiment_id FROM experiments WHERE name = ? AND lifecycle_stage = 'deleted'"
            deleted = database.execute(query, (experiment,)).fetchone() if "experiments" in tables else None
    except sqlite3.Error as error:
        raise SweepError(
            f"{option}: {file} cannot be read as a database of MLflow ({error}); correct the address, or move the file "
            f"away"
        ) from error
    if version is not None and latest_version() not in (version, None):
        raise SweepError(
            f"{option}: another MLflow made this database (version {version}), and the installed one does not open it; "
            f"back it up and run mlflow db upgrade {uri}, or install that MLflow if it is the newer one"
        )
    if deleted is not None:
        raise SweepError(
            f"{option}: the MLflow experiment {experiment!r} was deleted there; bring it back with: "
            f"mlflow experiments restore --experiment-id {deleted[0]}"
        )
