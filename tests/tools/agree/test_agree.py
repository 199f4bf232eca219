"""A few kinds of sweeps, on simulated groups, agree in every place; ``python -m tests.tools.agree`` has all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.agree.kinds import CheckedSweep, kind_of
from tests.tools.agree.places import disagreements
from tests.tools.agree.truth import Truth


@pytest.mark.parametrize(
    ("name", "seed", "kills"),
    [
        ("branches, baseline of a branch, confirmation", 0, 0),
        ("saves third, fifo", 0, 0),
        ("baseline, confirmation, nan", 0, 0),
        ("several trials a device", 0, 0),
        ("default", 0, 1),
        ("saves third", 40, 3),  # no copy of what a loop wrote last is left
        ("BOHB", 60, 3),  # a report that was made again is a trial's last
        ("trial early", 40, 3),  # killed after its end, too
        ("scheduler hyperband", 0, 1),
        ("median, counts nothing", 0, 0),  # Ray's rule reads the epoch of trials that have ended
        ("pbt, saves third", 0, 0),
        ("pbt, counts nothing", 0, 0),
        ("counts in every second report", 11, 0),  # a trial continues before a report that does not say it
        ("counts from 1 again", 0, 0),
        ("max, two directions of a maximum, fifo", 0, 0),
        ("two directions, baseline, confirmation", 0, 0),
    ],
)
def test_every_place_has_the_numbers_that_the_loops_wrote_down(
    name: str, seed: int, kills: int, tmp_path: Path, tracking_store: str, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = CheckedSweep(name, kind_of(name), tmp_path, tracking_store, seed=seed, kills=kills)
    assert sweep.run() == []
    taken_over = any(len({report["x"] for report in reports.values()}) > 1 for reports in sweep.truth.reports.values())
    assert taken_over == sweep.kind.clones
    assert "has saved no checkpoint" not in caplog.text  # not even where the first two reports come without one


def test_a_trial_that_waits_is_stopped_by_hand_and_keeps_its_checkpoint(tmp_path: Path, tracking_store: str) -> None:
    sweep = CheckedSweep("stopped", kind_of("stopped by hand"), tmp_path, tracking_store)
    assert sweep.run() == []
    summary = json.loads((sweep.folder / "summary.json").read_text())
    assert [entry["what"] for entry in summary["steered"]] == ["stop trial-002"]
    assert (summary["trials"][1]["status"], summary["trials"][1]["at"]) == ("stopped early", 1)
    assert [*(sweep.folder / "trial-002").glob("checkpoint_*/state.json")]


def test_a_wrong_number_is_found(tmp_path: Path, tracking_store: str) -> None:
    sweep = CheckedSweep("planted", kind_of("baseline, confirmation"), tmp_path, tracking_store)
    assert sweep.run() == []
    file = sweep.folder / "summary.json"
    summary = json.loads(file.read_text())
    (number, reports), *_ = sorted(sweep.truth.reports.items())
    summary["best"]["value"] -= 0.5
    summary["trials"][0]["value"] += 0.5
    summary["confirmation"]["rivals"][0]["interval"][1] += 0.5
    file.write_text(json.dumps(summary))
    truth: Truth = sweep.truth
    found = disagreements(sweep.folder, tracking_store, "", truth, killed=False, complete=True)
    assert any(line.startswith(f"summary.json: trial {number} has ") for line in found)
    assert any(line.startswith("best: summary.json has ") for line in found)
    assert {"confirmation", "export"} <= {line.partition(":")[0] for line in found}
    other = Truth({**truth.reports, number: {1: {**reports[1], "loss": -9.0}}}, truth.configs)
    lines = disagreements(sweep.folder, tracking_store, "", other, killed=False, complete=True)
    assert {"study", "MLflow", "report.html", "result.json"} <= {line.partition(":")[0] for line in lines}
