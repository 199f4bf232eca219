"""Whether a sweep can go on with what it began with; the file is as it would have left it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from gaudi_tune import Recipe, SweepOptions
from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.objective import Objective
from gaudi_tune.plan.check import check_unchanged
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.sweep.record.sweep_file import read_sweep_file, write_sweep_file
from tests.helpers.quadratic import QUADRATIC
from tests.sweep.record.test_sweep_file import PLAIN, plan_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep of 8 trials, 2 at a time, that was interrupted."""
    plan = plan_in(tmp_path)
    plan.folder.mkdir()
    write_sweep_file(plan)
    return plan.folder


SEVERAL = (Objective("score"), Objective("train_loss", "min"))


@pytest.mark.parametrize(
    ("experiment", "changes", "message"),
    [
        (
            replace(PLAIN, space={"x": tune.uniform(-2.0, 1.0), "y": tune.choice([1, 2])}),
            {},
            "the search space has changed for x, y, and a sweep keeps its own",
        ),
        (
            replace(PLAIN, mode="min"),
            {},
            "objective is max score, and the experiment's is min score, and a sweep",
        ),
        (replace(PLAIN, metric="train_loss"), {}, "objective is max score, and the experiment's is min train_loss"),
        (PLAIN, {"objectives": SEVERAL}, "objective is max score, and the experiment's is max score, min train_loss"),
        (PLAIN, {"groups": 1}, "had 2 trials at a time, and there is room for 1"),
    ],
)
def test_a_sweep_resumes_only_with_its_own_objective_space_and_room(
    folder: Path, experiment: Any, changes: dict[str, Any], message: str
) -> None:
    check_unchanged(plan_in(folder.parent, num_samples=9), read_sweep_file(folder))
    with pytest.raises(SweepError, match=message):
        check_unchanged(plan_in(folder.parent, experiment=experiment, **changes), read_sweep_file(folder))


def test_a_space_that_is_written_as_a_function_is_the_same_space(folder: Path) -> None:
    asked = replace(PLAIN, space=lambda trial: {"fail_at": 0 * trial.suggest_float("x", -1.0, 1.0)})
    check_unchanged(plan_in(folder.parent, experiment=asked), read_sweep_file(folder))


def leave(config: Any) -> list[str]:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"check": lambda config: config.none}, r"^check raised AttributeError: .*test_check\.py, line \d+\)"),
        ({"check": lambda config: next(iter([]))}, r"^check raised StopIteration .*test_check"),
        ({"check": leave}, r"^check raised SystemExit: 3 \(.*test_check\.py, line \d+\)"),
        ({"check": lambda config: int("it has no rows")}, "^invalid literal for int.. with base 10: 'it has no rows'$"),
        ({"check": lambda config: None}, "^check must return a list of texts for the plan, .* but returned None"),
        ({"check": lambda config: "fine"}, "^check must return a list of texts for the plan, .* but returned 'fine'"),
        ({"recipes": {"full": Recipe(settings=lambda: {"a": 1 / 0})}}, r"failed: ZeroDivisionError.*test_check\.py"),
        ({"recipes": {"full": Recipe(settings=lambda: 3)}}, "recipe must be values by name, .* but got 3"),  # type: ignore[arg-type,return-value]
        ({"space": lambda trial: {"x": trial.nothing}}, r"function failed .*AttributeError: .*test_check\.py, line"),
    ],
)
def test_an_error_in_a_function_of_the_users_says_in_which_line(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SweepError, match=message):
        make_plan(replace(PLAIN, **fields), SweepOptions(storage=tmp_path, device="cpu"))


def test_a_check_leaves_the_streams_as_they_were(storage: Path) -> None:
    streams = sys.stdout, sys.stderr
    make_plan(QUADRATIC, SweepOptions(storage=storage, device="cpu", name="x"))
    assert (sys.stdout, sys.stderr) == streams
