"""The rules by which trials end and checkpoints are written, without Ray's processes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ray.tune.result import SHOULD_CHECKPOINT

from experiments.sweep.budget import Budget
from experiments.sweep.checkpoints import KeepBest
from experiments.sweep.outcome import end_of, why_diverged
from experiments.sweep.scheduler import TrialEnds
from tests.experiments.sweep.quadratic import QUADRATIC


@pytest.mark.parametrize(
    ("result", "ends", "outcome"),
    [
        ({"epoch": 2, "score": 0.1}, False, "stopped early"),
        ({"epoch": 3, "score": 0.1}, True, "finished"),
        ({"epoch": 1, "score": math.nan}, True, "failed"),
        ({"epoch": 1, "score": 0.1, "train_loss": math.inf}, True, "failed"),
        ({"epoch": 1, "score": 0.1, "gradient_ratio": math.nan}, False, "stopped early"),
        ({"training_iteration": 3, "score": 0.1}, True, "finished"),
    ],
)
def test_a_trial_ends_at_its_budget_or_when_it_diverges(result: dict[str, Any], ends: bool, outcome: str) -> None:
    assert TrialEnds("score", Budget(epochs=3))("a", result) is ends
    assert end_of(result, "score", Budget(epochs=3)) == outcome


def test_a_diverged_trial_says_of_what() -> None:
    assert why_diverged({"epoch": 4, "val_loss": math.nan}, "score") == "diverged: val_loss is nan after epoch 4"


def test_checkpoints_are_written_of_the_best_so_far_and_the_best_end_only() -> None:
    keep = KeepBest(QUADRATIC)

    def wanted(score: float, done: bool = False) -> bool:
        result = {"score": score, "done": done}
        keep.on_trial_result(0, [], None, result)  # looks at the result alone
        return bool(result.get(SHOULD_CHECKPOINT))

    assert [wanted(0.5), wanted(0.4), wanted(0.5), wanted(0.6), wanted(math.nan)] == [True, False, True, True, False]
    assert [wanted(0.3, done=True), wanted(0.2, done=True), wanted(0.4, done=True)] == [True, False, True]
    restored = KeepBest(QUADRATIC)
    restored.set_state(keep.get_state())
    assert restored.get_state() == {"best": 0.6, "best_at_end": 0.4}
