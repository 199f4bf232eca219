"""The end of a sweep, without a Ray: what its summary says, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_tune import SweepOptions
from gaudi_tune.on_ray import conclusion
from gaudi_tune.on_ray.state_on_disk import StateOnDisk
from gaudi_tune.on_ray.sweep_run import SweepRun
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.result import exit_status
from tests.helpers.json_lines import JsonLinesTracker
from tests.helpers.quadratic import QUADRATIC


class WithoutModel(JsonLinesTracker):
    """A tracker that never gets the model, and delivers only at the end, so that the sweep's address is known late."""

    def close(self) -> str:
        self._file = self._file.with_name("delivered")
        return "no model: the predictor raised KeyError"


@pytest.fixture
def run(storage: Path, tmp_path: Path) -> SweepRun:
    plan = make_plan(QUADRATIC, SweepOptions(name="ended", storage=storage, device="cpu", epochs=1))
    plan.folder.mkdir(parents=True)
    run = SweepTuner(plan, trackers=[WithoutModel(tmp_path / "lines")]).run
    run.state.device_time.begin()
    return run


def test_a_trackers_failure_by_given_code_is_in_summary_and_status(run: SweepRun, tmp_path: Path) -> None:
    run.conclusion.write()
    summary = json.loads(run.plan.summary_file.read_text())
    assert "no model: the predictor raised KeyError" in summary["missing"]
    assert summary["json lines"] == run.conclusion.write()["json lines"] == str(tmp_path / "delivered")
    assert exit_status({**summary, "complete": True, "failed": None}) == 1


def test_the_summary_is_written_after_the_log(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``show`` reads the later one, and the study does not know that a failed trial counts with what it saved."""
    plan = make_plan(QUADRATIC, SweepOptions(name="ended", storage=storage, device="cpu", epochs=1))
    plan.folder.mkdir(parents=True)
    run = SweepTuner(plan, trackers=[]).run
    run.state.device_time.begin()
    written = list[str]()

    def wait_for_log(on_disk: StateOnDisk) -> bool:
        written.append("log")
        return False

    monkeypatch.setattr(conclusion, "write_summary", lambda *_: written.append("summary"))
    monkeypatch.setattr(StateOnDisk, "is_complete", property(wait_for_log))
    assert run.conclusion.write()["missing"] == ["state.log does not have the last state"]
    assert written == ["summary", "log", "summary"]
