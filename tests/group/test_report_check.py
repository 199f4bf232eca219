"""What a sweep cannot use in a report is an error of its trial."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gaudi_tune.base import names
from gaudi_tune.base.failure import FailureKind
from gaudi_tune.group.errors import WorkerRaisedError
from gaudi_tune.group.report_check import check_metrics
from gaudi_tune.sweep.record.device_time import REPORTED

GOOD = {"score": 0.5, "epoch": 1, "constraint/latency": math.nan, "train_s": 2.0, "note": None, "step": "1/10"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"score": None}, "'score', which the experiment asks for, must be a number, but this one has None"),
        ({"epoch": "1/10"}, "'epoch' must be the epochs finished, .* this one has '1/10'; report epoch"),
        ({"epoch": None}, r"this one has None; report epoch \+ 1 where the loop counts from 0, or leave 'epoch' out"),
        ({"epoch": math.nan}, "a finite number above 0, but this one has nan;"),
        ({"epoch": 0}, r"a finite number above 0, but this one has 0; report epoch \+ 1 where the loop counts from 0"),
        ({"constraint/latency": None}, "'constraint/latency' must be a number, .* has None; leave it out"),
        ({"constraint/latency": "n/a"}, "but this one has 'n/a'"),
        ({"train_s": "2 s"}, "'train_s' must be a finite number of seconds, but this one has '2 s'; leave it out"),
        ({"eval_s": math.inf}, "'eval_s' .* a finite number of seconds, but this one has inf"),
        ({"first_step_at": None}, "'first_step_at' .* but this one has None"),
    ],
)
def test_a_report_that_no_sweep_can_use_is_an_error_of_its_trial(wrong: dict[str, Any], message: str) -> None:
    check_metrics(GOOD, ["score"], names.EPOCH)
    check_metrics({"loss": 1.0}, [], names.EPOCH)
    check_metrics({**GOOD, "samples_per_s": 3}, ["score", "samples_per_s"], names.EPOCH)
    with pytest.raises(WorkerRaisedError, match=r"asks for 'samples_per_s', and the report has .*score"):
        check_metrics(GOOD, ["score", "samples_per_s"], names.EPOCH)
    with pytest.raises(WorkerRaisedError, match=f"the train loop's report is unusable: .*{message}") as raised:
        check_metrics({**GOOD, **wrong}, ["score"], names.EPOCH)
    assert raised.value.failure.kind == FailureKind.UNUSABLE_REPORT


@pytest.mark.parametrize(
    ("reported", "fix"),
    [
        ({"acc": 0.5, "loss": 1.0}, "has acc, loss; did you mean metric='acc'? Else have the train loop report"),
        ({"error": 0.5}, "has error; did you mean metric='error'?"),
        ({"loss": 1.0, "lr": 0.1}, "has loss, lr; give the Experiment the metric that is meant, or have the"),
        ({}, "has nothing; give the Experiment"),
    ],
)
def test_a_metric_that_is_not_reported_is_looked_for_among_those_that_are(reported: dict[str, Any], fix: str) -> None:
    added = {"epoch": 1, "system/cpu": 3.0, names.PEAK_MEMORY_GB: 1.0, names.TRAIN_SECONDS: 1.0}
    with pytest.raises(WorkerRaisedError) as raised:
        check_metrics({**reported, **added}, ["accuracy"], names.EPOCH)
    assert f"the experiment asks for 'accuracy', and the report {fix}" in str(raised.value)


def test_a_count_must_not_fall() -> None:
    check_metrics({"epoch": 3}, [], names.EPOCH, 3)
    check_metrics({}, [], names.EPOCH, 3)
    with pytest.raises(WorkerRaisedError, match="'epoch' must not fall, but 1 follows 3; have a loop count on"):
        check_metrics({"epoch": 1}, [], names.EPOCH, 3)


def test_steps_of_a_budget_count_from_1() -> None:
    check_metrics({"epoch": 0.0, "step": 10}, [], names.STEP)
    with pytest.raises(WorkerRaisedError, match=r"'step' must be the steps finished, .* 0; report step"):
        check_metrics({"epoch": 0.0, "step": 0}, [], names.STEP)


def test_all_times_that_device_time_reads_are_checked() -> None:
    assert set(REPORTED) <= set(names.TIME_METRICS)
