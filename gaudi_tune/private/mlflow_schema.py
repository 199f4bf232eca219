"""The version of MLflow's database, from the files of its migrations, without importing MLflow, which takes seconds.

MLflow (3.17) says whether a database is out of date only when it opens it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

MIGRATIONS = "store/db_migrations/versions"
"""The folder of the migrations in MLflow's package: a file for each, with its version and the one before it."""
VERSION_TABLE, VERSION_QUERY = "alembic_version", "SELECT version_num FROM alembic_version"
"""The table that has the version of a database, and how to read it."""


@cache
def latest_version() -> str | None:
    """Return the version of a database that the installed MLflow opens; None if its migrations are elsewhere."""
    spec = find_spec("mlflow")
    folder = Path(str(spec.origin)).parent / MIGRATIONS if spec is not None else Path()
    text = "\n".join(file.read_text() for file in folder.glob("*.py"))
    versions = {*re.findall(r"^revision = ['\"](\w+)", text, re.MULTILINE)}
    latest = versions.difference(re.findall(r"^down_revision = ['\"](\w+)", text, re.MULTILINE))
    return latest.pop() if len(latest) == 1 else None
