"""What the numbers of a trial mean: whether it diverged or failed, and which soft constraints it violates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.record.trial_state import TrialState


def why_diverged(metrics: Mapping[str, Any], *objectives: str) -> Failure | None:
    """Return the failure of a trial in whose report an objective or a loss is not finite; None if all are."""
    for name, value in metrics.items():
        is_watched = name in objectives or name.endswith("loss")
        if is_watched and isinstance(value, Real) and not math.isfinite(value):
            epoch = f" after epoch {metrics[names.EPOCH]}" if names.EPOCH in metrics else ""
            return Failure(FailureKind.DIVERGED, f"diverged: {name} is {value}{epoch}")
    return None


def failure_of(trial: TrialState, objectives: Sequence[Objective]) -> Failure | None:
    """Return the failure of a trial that has ended; None if it has not failed.

    A trial that ended without a finite value has failed, too.
    """
    if not trial.has_ended or (trial.status != "failed" and trial.curve):
        return None
    missing = f"no report of a finite {' and '.join(objective.name for objective in objectives)}"
    return trial.failure or Failure(FailureKind.NO_VALUE, missing)


def constraints_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the soft constraints that a trial reports, by name; above 0 means violated."""
    return {
        name.removeprefix(names.CONSTRAINT_PREFIX): float(value)
        for name, value in metrics.items()
        if name.startswith(names.CONSTRAINT_PREFIX) and math.isfinite(value)
    }
