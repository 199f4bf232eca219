"""A trace has the steps that were asked for, and changes no result."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from experiments.tune_resnet18 import EXPERIMENT
from gaudi_tune import SweepError, SweepOptions
from gaudi_tune.define.options import checked
from gaudi_tune.devices.hpu import HPU
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.training.profiling import Profile, profiling, traced
from tests.helpers.quadratic import QUADRATIC
from tests.helpers.sessions import numbers_of, reports_of
from tests.helpers.small_task import small_loop


@pytest.mark.parametrize(
    ("config", "wanted", "steps"),
    [
        ({"steps": 30, "eval_every": 20}, 3, [10, 11, 12]),  # after the warm-up
        ({"steps": 12, "eval_every": 6}, 2, [4, 5]),  # the last of the first report
        ({"epochs": 2}, 20, [1, 2, 3, 4]),  # of 5, all but the first
    ],
)
def test_a_trace_has_the_steps_that_are_asked_for(
    config: dict[str, int], wanted: int, steps: list[int], tmp_path: Path
) -> None:
    file = tmp_path / "trial-007" / "trace.json.gz"
    with profiling(Profile(wanted, str(file))):
        reports = reports_of(small_loop, config, save_at=1, save_to=tmp_path / "saved")
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert sorted(e["name"] for e in events if e["name"].startswith("ProfilerStep#")) == sorted(
        f"ProfilerStep#{step}" for step in steps
    )
    assert sum(event["name"] == "Optimizer.step#SGD.step" for event in events) == len(steps)
    assert [*map(numbers_of, reports)] == [*map(numbers_of, reports_of(small_loop, config))]
    file.unlink()
    with profiling(Profile(wanted, str(file))):  # a trial that goes on has been traced before
        reports_of(small_loop, config, start_from=tmp_path / "saved")
    assert not file.exists()


def test_a_trial_of_one_step_is_not_traced(tmp_path: Path) -> None:
    file = tmp_path / "trace.json.gz"
    with profiling(Profile(1, str(file))):
        assert len(reports_of(small_loop, {"steps": 1, "eval_every": 1})) == 1
    assert not file.exists()


def test_a_profiler_that_cannot_watch_the_device_watches_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch, "hpu", SimpleNamespace(is_available=lambda: True), raising=False)
    with profiling(Profile(1, str(tmp_path / "trace.json.gz"))), traced(HPU, 3) as next_of_trace:
        for _ in range(3):
            next_of_trace()
    assert "the trace covers the CPU alone: AssertionError: Legacy HPU profiling" in caplog.text
    assert "ProfilerStep#2" in gzip.decompress((tmp_path / "trace.json.gz").read_bytes()).decode()


def test_a_trial_with_too_few_steps_for_a_trace_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "trace.json.gz"
    with profiling(Profile(1, str(file))):
        reports_of(small_loop, {"epochs": 2, "batch_size": 45})
    assert not file.exists()
    assert caplog.text.count("no trace: the first report comes after one step") == 1


@pytest.mark.parametrize("given", ["", "7", "7:", ":5", "0:5", "7:0", "a:5", "1:2:3", "-1:5"])
def test_what_names_no_trial_and_steps_is_an_error(given: str) -> None:
    with pytest.raises(SweepError, match=r"--profile .*give TRIAL:STEPS"):
        checked({**vars(SweepOptions()), "profile": given})
    assert SweepOptions(profile="3:20").profiled == (3, 20)


def test_what_cannot_be_traced_is_an_error(storage: Path) -> None:
    usual = SweepOptions(storage=storage, device="cpu", num_samples=8, confirm=0)
    assert make_plan(EXPERIMENT, replace(usual, profile="8:1")).options.profile == "8:1"
    with pytest.raises(SweepError, match="--profile 9:1: there is no trial 9; give one of 1 to 8"):
        make_plan(EXPERIMENT, replace(usual, profile="9:1"))
    with pytest.raises(
        SweepError, match=r"--profile 1:1: only the shared train loop can be traced, and .* has another"
    ):
        make_plan(QUADRATIC, replace(usual, profile="1:1"))
    with pytest.raises(SweepError, match=r"--profile 1:1: .* with --eval-every 1 there are none; give --eval-every 2"):
        make_plan(EXPERIMENT, replace(usual, profile="1:1", steps=9, eval_every=1))
