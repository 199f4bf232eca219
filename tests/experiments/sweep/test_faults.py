"""Some faults in one sweep; all of them, again and again: ``python -m tests.faults``."""

from __future__ import annotations

import json
import re

from tests.experiments.sweep.conftest import TRIALS
from tests.faults.check import check
from tests.faults.sweep import Sweep


def test_nothing_is_lost_doubled_or_leaked(disturbed: Sweep) -> None:
    check(disturbed)
    assert disturbed.faults == {"lost": 0, "doubled": 0, "leaked": 0}, disturbed.printed
    assert f"sweep goes on: {TRIALS + 1} trials" in disturbed.printed


def test_every_trial_has_a_folder_of_its_own(disturbed: Sweep) -> None:
    folders = sorted(folder.name for folder in disturbed.folder.glob("trial-*"))
    assert folders == [f"trial-{number:03d}" for number in range(1, TRIALS + 2)]
    summary = json.loads((disturbed.folder / "summary.json").read_text())
    assert summary["trials"] == {"finished": TRIALS, "failed": 1}


def test_the_report_shows_what_was_before_and_after(disturbed: Sweep) -> None:
    report = (disturbed.folder / "report.html").read_text()
    assert f"{TRIALS} finished" in re.sub("<[^>]*>", "", report)
    rows = re.findall(r"<td>(\d+)</td>\s*<td class=.words.*</span>(?:finished|failed)</td>", report)
    assert rows == [str(number) for number in range(1, TRIALS + 2)]
    traces = re.search(r'Plotly\.newPlot\(\s*"timeline",\s*(?=\[)', report)
    assert traces is not None
    (_, blocks), _ = json.JSONDecoder().raw_decode(report, traces.end())
    assert set(map(int, blocks["text"])) == set(range(1, TRIALS + 2))
