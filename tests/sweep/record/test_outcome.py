"""What the numbers of a report mean."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.sweep.record.outcome import constraints_of, why_diverged


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        ({"epoch": 2, "score": 0.1}, None),
        ({"epoch": 1, "score": math.nan}, "diverged: score is nan after epoch 1"),
        ({"epoch": 4, "score": 0.1, "train_loss": math.inf}, "diverged: train_loss is inf after epoch 4"),
        ({"step": 4, "score": -math.inf}, "diverged: score is -inf"),
        ({"epoch": 1, "score": 0.1, "gradient_ratio": math.nan}, None),
    ],
)
def test_a_trial_diverges_when_its_objective_or_a_loss_is_not_finite(metrics: dict[str, Any], why: str | None) -> None:
    assert why_diverged(metrics, "score") == (why and Failure(FailureKind.DIVERGED, why))


def test_constraints_are_the_finite_ones_by_name() -> None:
    metrics = {"constraint/memory_gb": 0.5, "constraint/time": math.nan, "score": 1.0}
    assert constraints_of(metrics) == {"memory_gb": 0.5}
