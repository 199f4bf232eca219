"""Metrics and parameters under names that MLflow accepts, each under one of its own."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from gaudi_tune.show.trackers.records import MAX_NAME
from gaudi_tune.training.report_values import as_float


def numbers_in(entries: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries that are numbers; True is 1, False is 0.

    Infinity is left out: MLflow's databases would have the largest float in its place.
    """
    numbers = {name: as_float(value) for name, value in entries.items() if isinstance(value, Real)}
    return {name: value for name, value in numbers.items() if not math.isinf(value)}


def own_names(names: Iterable[str], known_names: dict[str, str]) -> dict[str, str]:
    """Return for each name one that MLflow accepts, and that no other has.

    Args:
        names: The names.
        known_names: What each name in MLflow stands for. Those of ``names`` are added.
    """
    mlflow_names = {}
    # Names that MLflow takes as they are come first and stay: "acc_1" before "acc@1".
    for name in sorted(names, key=lambda name: accepted_name(name) != name):
        mlflow_name = accepted_name(name)
        if known_names.setdefault(mlflow_name, name) != name:
            mlflow_name = second_name(name)
        mlflow_names[name] = mlflow_name
    return mlflow_names


def accepted_name(name: str) -> str:
    """Return a name that MLflow accepts. For one name like ``acc@1`` or ``val/`` it refuses a whole batch."""
    parts = re.sub(r"[^\w\-. :/]", "_", name).split("/")
    return "/".join(part for part in parts if part not in ("", ".", ".."))[:MAX_NAME] or "_"


def second_name(name: str) -> str:
    """Return the name that MLflow gets for one whose accepted name stands for another."""
    return f"{accepted_name(name)[: MAX_NAME - 9]}_{zlib.crc32(name.encode()):08x}"
