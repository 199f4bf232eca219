"""Any report is an error of its trial, or everything that shows and keeps a sweep takes it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gaudi_tune import SweepOptions
from gaudi_tune.base import names
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import point_in
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.group.errors import WorkerRaisedError
from gaudi_tune.group.report_check import check_metrics
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.progress import ShowProgress
from gaudi_tune.show.summary import summarise
from gaudi_tune.show.trackers.mlflow_names import numbers_in
from gaudi_tune.show.trackers.records import Update, from_line, to_line
from gaudi_tune.sweep.record.events import Reported
from gaudi_tune.sweep.record.outcome import why_diverged
from gaudi_tune.sweep.record.state_log import StateLog, pack, read_log
from gaudi_tune.training.report_values import plain_report
from tests.helpers.fed_state import Fed
from tests.helpers.quadratic import QUADRATIC

REPORTS = int(os.environ.get("FUZZ_REPORTS", "150"))
"""How many reports are tried."""
KNOWN = ["score", "epoch", "step", "test_score", "train_loss", "constraint/x", "workers"]
NAMES = st.sampled_from([*KNOWN, *names.TIME_METRICS, *names.DEVICE_COUNTS]) | st.text(max_size=20)
HUGE = st.integers(-(10**400), 10**400) | st.sampled_from([10**5000, -(10**5000), 1e308, -1e308, 5e-324, 2**63])
NUMBERS = st.integers(-3, 10) | st.floats() | HUGE | st.decimals() | st.fractions() | st.booleans()
OTHERS = st.none() | st.text() | st.binary() | st.complex_numbers() | st.lists(st.integers()) | st.builds(object)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    plan = make_plan(QUADRATIC, SweepOptions(storage=tmp_path_factory.mktemp("any"), name="report", device="cpu"))
    plan.folder.mkdir()
    return plan


@settings(max_examples=REPORTS, deadline=None, suppress_health_check=list(HealthCheck))
@given(score=NUMBERS, metrics=st.dictionaries(NAMES, NUMBERS | OTHERS, max_size=6))
def test_any_report_fails_its_trial_or_is_shown_and_kept(score: Any, metrics: dict[str, Any], plan: Plan) -> None:
    with suppress(ValueError, WorkerRaisedError):  # what fails the trial
        report = plain_report({**metrics, "score": score})
        check_metrics(report, ["score"], names.EPOCH)
        keep_and_show(report, plan, plan.folder)


def keep_and_show(report: dict[str, Any], plan: Plan, folder: Path) -> None:
    fed, progress = Fed(), ShowProgress(plan)
    fed.begin(1)
    try:
        step = Budget(epochs=4).progress({**report, "training_iteration": 1})
        why_diverged(report, "score")
        metrics = {**report, names.STEP_SECONDS: 1.0, names.SECOND: 1.0, names.DEVICES: ""}  # the trial actor's own
        point = point_in(fed.state.objectives, metrics)
        fed.state.apply(Reported(trial=1, step=step, point=point, metrics=metrics, config={"x": 0.5}))
        fed.end(1)
        trial = fed.state.trials[1]
        assert len(progress._trial_line(trial, "finished", fed.state)) < 200
        assert len(progress._status(fed.state)) < 200
        json.dumps(summarise(plan, fed.state, {}))
        record = Update(run="001", time_ms=1, step=step, metrics=numbers_in(report))
        assert from_line(to_line(record)).run == "001"
        log = StateLog(folder)
        log.append(pack(fed.state.snapshot()))
        Fed().state.restore(read_log(folder))
        assert abs(step) < 2**63
        assert all(isinstance(value, float) for value in numbers_in(report).values())
    except ValueError as error:  # which the test would take for one of plain_report()
        raise AssertionError(report) from error
