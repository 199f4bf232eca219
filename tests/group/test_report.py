"""A report crosses the border to Tune and back, whatever a train loop calls its metrics."""

from __future__ import annotations

import pytest
from ray.tune.result import AUTO_RESULT_KEYS, DONE, EXPERIMENT_TAG, RESULT_DUPLICATE, SHOULD_CHECKPOINT, TRIAL_ID
from ray.tune.utils.util import flatten_dict

from gaudi_tune.base import names
from gaudi_tune.group.report import Report

REPORTS = {
    "plain": Report(metrics={"loss": 0.5}, timing={names.STEP_SECONDS: 1.0, names.START_SECONDS: 0.0}),
    "all": Report(
        metrics={"loss": 0.5, "note": "warm"},
        timing={names.STEP_SECONDS: 1.0, names.DEVICES: "n:0"},
        behind=2,
        starts_over=True,
        ends_itself=True,
        new_workers="it was asked for",
    ),
    "nothing to save": Report(metrics={"loss": 0.5}, behind=None),
    "names of the sweep": Report(
        metrics={"step_s": 7.0, "devices": 3, "saved_behind": 1, "workers": 2, "second": 9.0, "done_at": 1},
        timing={names.STEP_SECONDS: 1.0, names.SECOND: 1.0, names.WORKERS: 4},
    ),
}


@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_comes_back_as_it_was_from_a_result_flat_or_not(kind: str) -> None:
    report = REPORTS[kind]
    result = {**report.as_result(), "training_iteration": 1, "config": {"lr": 0.1}, "pid": 7}
    assert Report.in_result(result) == Report.in_result(flatten_dict(result)) == report
    assert set(report.as_result()) - set(report.metrics) <= {names.OURS, SHOULD_CHECKPOINT}


def test_the_names_that_tune_sets_are_those_of_this_ray() -> None:
    of_ray = {*AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT, RESULT_DUPLICATE, TRIAL_ID, EXPERIMENT_TAG}
    assert of_ray == names.SET_BY_TUNE
