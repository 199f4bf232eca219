"""The versions of the packages on which results depend."""

from __future__ import annotations

import importlib.metadata

PACKAGES = ("torch", "torchvision", "habana-torch-plugin", "ray", "optuna", "mlflow", "transformers")


def installed_versions() -> dict[str, str]:
    """Return the version of each of :data:`PACKAGES` that is installed."""
    return {package: version for package in PACKAGES if (version := version_of(package))}


def version_of(package: str) -> str:
    """Return the version of an installed package, "" if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
