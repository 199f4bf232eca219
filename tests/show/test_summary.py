from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune import SweepOptions
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.result import result_lines
from gaudi_tune.show.summary import search_of, summarise
from tests.helpers.fed_state import Fed
from tests.helpers.quadratic import QUADRATIC


@pytest.fixture
def plan(storage: Path) -> Plan:
    return make_plan(QUADRATIC, SweepOptions(storage=storage, name="x", device="cpu"))


def test_the_checkpoint_of_a_point_is_of_its_report(storage: Path) -> None:
    """And not of a later one with the same first value."""
    objectives = ("score:max", "seconds:min")
    plan = make_plan(QUADRATIC, SweepOptions(storage=storage, name="x", device="cpu", objectives=objectives))
    fed = Fed(others=[Objective("seconds", "min")])
    fed.begin(1)
    for step, seconds in ((1, 3.0), (2, 5.0)):
        fed.report(1, step, 0.5, seconds=seconds)
        fed.save(1)
        (plan.folder / "trial-001" / f"checkpoint_{step:06d}").mkdir(parents=True)
    (of_trial,) = summarise(plan, fed.state, {})["front"]
    assert (of_trial["values"], of_trial["epoch"]) == ({"score": 0.5, "seconds": 3.0}, 1)
    assert of_trial["checkpoint"] == str(plan.folder / "trial-001" / "checkpoint_000001")
    (plan.folder / "trial-001" / "checkpoint_000001").rmdir()
    (of_trial,) = summarise(plan, fed.state, {})["front"]
    assert (of_trial["epoch"], of_trial["checkpoint"]) == (1, None)


@pytest.mark.parametrize(
    ("before", "after"),
    [('cfg = {1: 2}; load("', '")'), ('f"{x!r:>{9}}"; load("', '", {})'), ("}{0}", "{"), ("{", "}")],
)
def test_a_line_that_loads_a_checkpoint_may_have_any_braces(before: str, after: str, storage: Path) -> None:
    experiment = replace(QUADRATIC, load_line=f"{before}{{checkpoint}}{after}")
    plan = make_plan(experiment, SweepOptions(storage=storage, name="x", device="cpu"))
    fed = Fed()
    fed.begin(1)
    fed.report(1, 1, 0.5)
    fed.save(1)
    folder = plan.folder / "trial-001" / "checkpoint_000001"
    folder.mkdir(parents=True)
    assert summarise(plan, fed.state, {})["best"]["load"] == f"{before}{folder}{after}"


def test_a_line_that_loads_a_checkpoint_is_text() -> None:
    with pytest.raises(ValueError, match="load_line must be a text, but got 5"):
        replace(QUADRATIC, load_line=5)  # type: ignore[arg-type]


def test_the_best_may_have_failed_later_which_is_said(plan: Plan) -> None:
    fed = Fed()
    fed.trial(1, 0.1, 0.2, 0.3, 0.4)
    fed.trial(2, 0.9, math.nan, outcome="failed", reason="diverged: score is nan at epoch 2")
    fed.state.close()
    first = result_lines(plan.folder, summarise(plan, fed.state, {}))[0]
    assert first.startswith("best        trial 002: score 0.9 at epoch 1 (")
    assert first.endswith("); later it failed: diverged: score is nan at epoch 2")
    fed.report(1, 4, 0.95)
    assert "failed" not in result_lines(plan.folder, summarise(plan, fed.state, {}))[0]


def test_the_configuration_of_a_clone_is_the_one_that_reached_its_value(plan: Plan) -> None:
    fed = Fed()
    fed.trial(1, 0.5, outcome=None, x=0.1)
    fed.begin(1, x=0.9)  # pbt: it goes on with another configuration
    fed.report(1, 2, 0.8)
    fed.end(1)
    (trial,) = search_of(plan, fed.state)
    assert (trial["value"], trial["at"], trial["config"]) == (0.8, 2, {"x": 0.9})


def test_in_all_lists_a_failed_trial_counts_with_the_best_report_that_it_saved(plan: Plan) -> None:
    fed = Fed()
    fed.begin(1, 2)
    fed.report(1, 1, 0.5)
    fed.save(1)
    for number in (1, 2):
        fed.report(number, 2, 0.9)
        fed.end(number, "failed", "its worker died", raised=True)
    saved, unsaved = search_of(plan, fed.state)
    assert (saved["value"], saved["at"], summarise(plan, fed.state, {})["best"]["value"]) == (0.5, 1, 0.5)
    assert (unsaved["value"], unsaved["at"]) == (None, None)


def test_trials_that_are_all_equal_are_said_to_be_and_to_predict_one_class(plan: Plan) -> None:
    fed = Fed()
    one_class: dict[str, Any] = {"val_accuracy": 0.6, "val_balanced_accuracy": 0.25, "val_macro_f1": 2 * 0.6 / 1.6 / 4}
    for number in (1, 2):
        fed.begin(number)
        fed.report(number, 1, 0.6, **one_class)
    lines = result_lines(plan.folder, summarise(plan, fed.state, {}))
    assert (
        "equal       all 2 trials have score 0.6, and each predicts a single class: nothing tells them apart" in lines
    )
    fed.begin(3)
    fed.report(3, 1, 0.6, **{**one_class, "val_macro_f1": 0.2})
    assert summarise(plan, fed.state, {})["all_equal"] == "all 3 trials have score 0.6: nothing tells them apart"
    fed.begin(4)
    fed.report(4, 1, 0.5)
    assert summarise(plan, fed.state, {})["all_equal"] == ""
