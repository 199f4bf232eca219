"""The provenance of a sweep: the versions that it ran with, and the state of the checkout."""

from __future__ import annotations

import platform
import subprocess

from gaudi_tune.base.process import installed_versions
from gaudi_tune.define.options import HOME

GIT_COMMIT = "mlflow.source.git.commit"
"""The tag whose value MLflow's page shows as the commit. Importing MLflow's name of it takes a second."""


def provenance() -> dict[str, str]:
    """Return tags for a run: ``version.*`` of the installed packages, git's commit, and whether files were changed."""
    versions = {f"version.{package}": version for package, version in installed_versions().items()}
    return {"version.python": platform.python_version(), **git_state(), **versions}


def git_state() -> dict[str, str]:
    """Return the commit and the dirty flag of the checkout; {} outside a checkout or without git."""
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    if commit is None or changes is None:
        return {}
    return {GIT_COMMIT: commit, "git.dirty": str(bool(changes)).lower()}


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(HOME), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
