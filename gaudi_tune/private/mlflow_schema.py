"""The versions of MLflow's database, from the files of its migrations, without importing MLflow, which takes seconds.

MLflow (3.17) says whether a database is out of date only when it opens it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

MIGRATIONS = "store/db_migrations/versions"
"""The folder of the migrations in MLflow's package: a file for each, with its version and the one before it."""
VERSION_TABLE = "alembic_version"
"""The table that has the version of a database, in the column ``version_num``."""


@cache
def schema_versions() -> tuple[str, frozenset[str]]:
    """Return the version of a database that the installed MLflow opens, and all versions that it can upgrade.

    Raises:
        LookupError: The migrations are not where they were in MLflow 3.17.
    """
    spec = find_spec("mlflow")
    folder = Path(str(spec.origin)).parent / MIGRATIONS if spec is not None else Path()
    versions, earlier_versions = set[str](), set[str]()
    for file in folder.glob("*.py"):
        text = file.read_text()
        versions.update(re.findall(r"^revision\s*=\s*['\"](\w+)['\"]", text, flags=re.MULTILINE))
        earlier_versions.update(re.findall(r"^down_revision\s*=\s*['\"](\w+)['\"]", text, flags=re.MULTILINE))
    latest = versions - earlier_versions
    if len(latest) != 1:
        raise LookupError(f"{folder} has {len(latest)} latest migrations in place of one")
    return latest.pop(), frozenset(versions)
