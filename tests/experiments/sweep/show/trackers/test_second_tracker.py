"""Another tracker than MLflow: one file, and no edit elsewhere; it gets every event of a sweep, in order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from experiments import SweepOptions
from experiments.sweep.on_ray.tuner import tuner_of
from experiments.sweep.plan.plan import make_plan
from experiments.sweep.show.trackers.mlflow_tracker import MlflowTracker
from experiments.sweep.show.trackers.tracker import TRACKERS, Tracker
from experiments.sweep.state.events import SweepBegan
from tests.experiments.sweep.quadratic import QUADRATIC
from tests.experiments.sweep.show.trackers.json_lines import JsonLinesTracker
from tests.experiments.sweep.show.trackers.scripted import began, ended, happen, over, plan_of, reported, state_of


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


@pytest.mark.usefixtures("ray_here")
def test_it_gets_every_event_of_a_sweep_in_order(storage: Path) -> None:
    """Trials that finish, raise, diverge and return early."""
    plan = make_plan(QUADRATIC, SweepOptions(storage=storage, name="events", device="cpu", num_samples=4))
    tracker = JsonLinesTracker(storage / "events.jsonl")
    tuner_of(plan, trackers=[tracker]).fit()
    lines = tracker.lines()
    events = [line["event"] for line in lines]
    assert (events[0], events.count("SweepBegan"), events.count("SweepEnded"), events[-1]) == (
        "SweepBegan",
        1,
        1,
        "closed",
    )
    after_the_end = set(events[events.index("SweepEnded") + 1 :])
    assert after_the_end <= {"PicturesDrawn", "ModelFound", "closed"}
    assert sum(line["event"] == "PicturesDrawn" and line["last"] for line in lines) == 1
    for trial in (1, 2, 3, 4):
        own = [line for line in lines if line.get("trial") == trial and line["event"] != "ModelFound"]
        assert (own[0]["event"], own[-1]["event"]) == ("TrialBegan", "TrialEnded")
        assert sum(line["event"] == "TrialEnded" for line in own) == 1
        reports = [line for line in own if line["event"] == "Reported"]
        steps = [line["step"] for line in reports]
        assert steps == sorted(set(steps))
        decided = [after["decision"] for line, after in pairwise(own) if line["event"] == "Reported"]
        assert len(decided) == len(reports)
    ends = {line["trial"]: line["outcome"] for line in lines if line["event"] == "TrialEnded"}
    assert (ends[1], ends[2], ends[3]) == ("finished", "failed", "failed")
    (summary,) = [line["summary"] for line in lines if line["event"] == "SweepEnded"]
    assert summary["trials"] == Counter(ends.values())
