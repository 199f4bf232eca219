"""The meaning of a report's numbers: whether the trial diverged, and which soft constraints it violates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.failure import Failure, FailureKind


def why_diverged(metrics: Mapping[str, Any], *objectives: str) -> Failure | None:
    """Return the failure of a trial in whose report an objective or a loss is not finite; None if all are."""
    for name, value in metrics.items():
        is_watched = name in objectives or name.endswith("loss")
        if is_watched and isinstance(value, Real) and not math.isfinite(value):
            epoch = f" after epoch {metrics[names.EPOCH]}" if names.EPOCH in metrics else ""
            return Failure(FailureKind.DIVERGED, f"diverged: {name} is {value}{epoch}")
    return None


def constraints_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the soft constraints that a trial reports, by name; above 0 means violated."""
    return {
        name.removeprefix(names.CONSTRAINT_PREFIX): float(value)
        for name, value in metrics.items()
        if name.startswith(names.CONSTRAINT_PREFIX) and math.isfinite(value)
    }
