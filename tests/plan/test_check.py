"""Whether a sweep can go on with what it began with; the file is as it would have left it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from gaudi_tune.base.errors import SweepError
from gaudi_tune.plan.check import check_unchanged
from gaudi_tune.sweep.record.sweep_file import read_sweep_file, write_sweep_file
from tests.sweep.record.test_sweep_file import PLAIN, plan_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep of 8 trials, 2 at a time, that was interrupted."""
    plan = plan_in(tmp_path)
    plan.folder.mkdir()
    write_sweep_file(plan)
    return plan.folder


@pytest.mark.parametrize(
    ("experiment", "changes", "message"),
    [
        (
            replace(PLAIN, space={"x": tune.uniform(-2.0, 1.0), "y": tune.choice([1, 2])}),
            {},
            "the search space has changed for x, y, and a sweep keeps its own",
        ),
        (replace(PLAIN, mode="min"), {}, "objective is max score, and the experiment's is min score; a study has one"),
        (replace(PLAIN, metric="train_loss"), {}, "objective is max score, and the experiment's is min train_loss"),
        (PLAIN, {"groups": 1}, "had 2 trials at a time, and there is room for 1"),
    ],
)
def test_it_goes_on_only_with_what_it_was(folder: Path, experiment: Any, changes: dict[str, Any], message: str) -> None:
    check_unchanged(plan_in(folder.parent, num_samples=9), read_sweep_file(folder))
    with pytest.raises(SweepError, match=message):
        check_unchanged(plan_in(folder.parent, experiment=experiment, **changes), read_sweep_file(folder))


def test_a_space_that_is_written_as_a_function_is_the_same_space(folder: Path) -> None:
    asked = replace(PLAIN, space=lambda trial: {"fail_at": 0 * trial.suggest_float("x", -1.0, 1.0)})
    check_unchanged(plan_in(folder.parent, experiment=asked), read_sweep_file(folder))
