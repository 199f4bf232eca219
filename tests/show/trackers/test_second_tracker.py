"""Another tracker than MLflow: one file, and no edit elsewhere; it gets every event of a sweep, in order."""

from __future__ import annotations

from pathlib import Path

from gaudi_tune.show.trackers.mlflow_tracker import MlflowTracker
from gaudi_tune.show.trackers.tracker import TRACKERS, Tracker
from gaudi_tune.sweep.record.events import SweepBegan
from tests.helpers.json_lines import JsonLinesTracker
from tests.helpers.scripted import began, ended, happen, over, plan_of, reported, state_of


def test_it_writes_down_what_happens(storage: Path) -> None:
    plan = plan_of(storage, "scripted")
    tracker: Tracker = JsonLinesTracker(plan.folder / "events.jsonl")
    state = state_of(plan)
    happen(tracker, state, SweepBegan(), began(1), reported(1, 1, 0.25), ended(1, "finished", "its budget"))
    over(tracker, state)
    lines = JsonLinesTracker(plan.folder / "events.jsonl").lines()
    assert [line["event"] for line in lines] == [
        "SweepBegan", "TrialBegan", "Reported", "TrialEnded", "SweepEnded", "closed",
    ]  # fmt: skip
    assert (lines[1]["config"], lines[2]["metrics"]["score"], lines[3]["reason"]) == (
        {"x": 0.1, "seed": 1}, 0.25, "its budget",
    )  # fmt: skip


def test_mlflow_is_the_one_that_every_sweep_has() -> None:
    assert {"mlflow": MlflowTracker} == TRACKERS
