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
from gaudi_tune.devices.hpu import HPU
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.recipes.profiling import traced
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
    traced_config = {**config, "profile": wanted}
    reports = reports_of(small_loop, traced_config, save_at=1, save_to=tmp_path / "saved", folder=file.parent)
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert sorted(e["name"] for e in events if e["name"].startswith("ProfilerStep#")) == sorted(
        f"ProfilerStep#{step}" for step in steps
    )
    assert sum(event["name"] == "Optimizer.step#SGD.step" for event in events) == len(steps)
    assert [*map(numbers_of, reports)] == [*map(numbers_of, reports_of(small_loop, config))]
    file.unlink()
    # A trial that continues was traced before.
    reports_of(small_loop, traced_config, start_from=tmp_path / "saved", folder=file.parent)
    assert not file.exists()


def test_a_trial_of_one_step_is_not_traced(tmp_path: Path) -> None:
    assert len(reports_of(small_loop, {"epochs": 1, "batch_size": 45, "profile": 1}, folder=tmp_path)) == 1
    assert not [*tmp_path.iterdir()]


def test_a_profiler_that_cannot_watch_the_device_watches_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch, "hpu", SimpleNamespace(is_available=lambda: True), raising=False)
    with traced(HPU, 3, 1, tmp_path) as next_of_trace:
        for _ in range(3):
            next_of_trace()
    assert "the trace covers the CPU alone: AssertionError: Legacy HPU profiling" in caplog.text
    assert "ProfilerStep#2" in gzip.decompress((tmp_path / "trace.json.gz").read_bytes()).decode()


def test_a_trial_with_too_few_steps_for_a_trace_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reports_of(small_loop, {"epochs": 2, "batch_size": 45, "profile": 1}, folder=tmp_path)
    assert not [*tmp_path.iterdir()]
    assert caplog.text.count("no trace: the first report comes after one step") == 1


def test_an_untraceable_model_is_an_error(storage: Path) -> None:
    usual = SweepOptions(storage=storage, device="cpu", num_samples=8, confirm=0, settings=("profile=20",))
    assert make_plan(EXPERIMENT, usual).settings["profile"] == 20
    with pytest.raises(SweepError, match=r"eval_every of 2 or more, .* got eval_every=1, profile=20"):
        make_plan(EXPERIMENT, replace(usual, steps=9, eval_every=1))
    with pytest.raises(SweepError, match="profile must not be negative, but got -1"):
        make_plan(EXPERIMENT, replace(usual, settings=("profile=-1",)))
