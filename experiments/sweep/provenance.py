"""What a sweep ran with: versions, and the state of the checkout."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess

from mlflow.utils.mlflow_tags import MLFLOW_GIT_COMMIT

from experiments.sweep.options import PROJECT_ROOT

PACKAGES = ("torch", "torchvision", "habana-torch-plugin", "ray", "optuna", "mlflow", "transformers")


def provenance() -> dict[str, str]:
    """Return it as tags of a run: ``version.*`` of what is installed, git's commit and whether files were changed."""
    tags = {"version.python": platform.python_version(), **git_state()}
    for package in PACKAGES:
        if version := _version_of(package):
            tags[f"version.{package}"] = version
    return tags


def git_state() -> dict[str, str]:
    """Return commit and dirty flag of the checkout; nothing outside one, or without git."""
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    if commit is None or changes is None:
        return {}
    return {MLFLOW_GIT_COMMIT: commit, "git.dirty": str(bool(changes)).lower()}


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(PROJECT_ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
