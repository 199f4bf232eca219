"""The line of Python that loads the best trial's model from MLflow. This module does not import MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

ALIAS = "best"
"""The alias in the registry of the version that was registered last."""


def load_line(ids: Mapping[str, str], checkpoint: str, tracking_uri: str, register: str | None) -> str | None:
    """Return a line of Python that loads a model from MLflow; None if MLflow does not have it."""
    name = checkpoint_name(checkpoint)
    model, version = ids.get(f"model of {name}"), ids.get(f"version of {name} in {register}")
    if model is None:
        return None
    address, note = model, ""
    if version:
        address, note = f"{register}/{version}", f"  # also models:/{register}@{ALIAS}"
    store, source = json.dumps(tracking_uri), json.dumps(f"models:/{address}")  # JSON's quotes are valid in Python
    return f"import mlflow; mlflow.set_tracking_uri({store}); model = mlflow.pyfunc.load_model({source}){note}"


def checkpoint_name(checkpoint: str) -> str:
    """Return the last two parts of a checkpoint's path, trial and checkpoint, which are unique in a sweep."""
    return "/".join(Path(checkpoint).parts[-2:])
