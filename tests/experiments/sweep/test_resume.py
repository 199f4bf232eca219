"""A sweep that suffers some faults and goes on with --resume; and which sweeps can, and with what.

All faults, again and again: ``python -m tests.faults``.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from experiments.sweep.errors import SweepError
from experiments.sweep.options import SweepOptions
from experiments.sweep.resume import SNAPSHOTS, STATE_FILES, make_ready, whole_state
from experiments.sweep.sweep_file import check_resumable, options_of_sweep
from experiments.sweep.tracking.outbox import Outbox
from tests.faults.check import check
from tests.faults.inflict import Inflict
from tests.faults.sweep import EPOCH_S, GONE_WITHIN_S, Sweep

TRIALS = 6


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    """A sweep with a trial that diverges, one that loses its worker and half its checkpoint, and a killed driver whose
    state is torn; resumed with one trial more."""
    folder = tmp_path_factory.mktemp("faults")
    at_once = {"HABANA_STAND_IN_BUSY_S": "0"}  # else each group that comes after a kill is started twice
    sweep = Sweep(folder, "sweep", f"sqlite:///{folder}/mlflow.db", TRIALS, seed=1, variables=at_once)
    inflict = Inflict(sweep, None, random.Random(0))
    try:
        sweep.start()
        assert sweep.wait_for_all(0.0), sweep.printed
        inflict.nan()
        inflict.torn_checkpoint()
        sweep.driver.kill()
        sweep.ended_with(GONE_WITHIN_S)
        inflict.tear_state()
        sweep.resume(add_trials=1)
        sweep.finish()
        yield sweep
    finally:
        sweep.end()


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


def test_torn_state_is_found_and_repaired_from_a_snapshot(disturbed: Sweep) -> None:
    for pattern in STATE_FILES:
        newest = max(disturbed.folder.glob(pattern))
        newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
        assert whole_state(disturbed.folder) == []
    make_ready(disturbed.folder)
    assert len(whole_state(disturbed.folder)) == len(STATE_FILES)


def test_without_any_whole_state_it_is_a_clear_error_and_no_new_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "torn"
    (folder / SNAPSHOTS / "1").mkdir(parents=True)
    (folder / SNAPSHOTS / "1" / "experiment_state-1.json").write_text('{"trial_data": [')
    with pytest.raises(SweepError, match=r"--resume torn: Tune's state in .* is missing or torn.*start a new sweep"):
        make_ready(folder)


@pytest.mark.parametrize(
    ("changes", "experiment", "says"),
    [
        ({"resume": "other"}, "accumulating", r"--resume other: no such sweep in .*; there: sweep"),
        ({"resume": "sweep"}, "bert", "that is a sweep of accumulating, not of bert"),
        ({"resume": "sweep", "num_samples": 9, "seed": 2}, "accumulating", "leave out --num-samples, --seed"),
        ({"resume": "sweep", "add_trials": -1}, "accumulating", "--add-trials must be at least 0, but got -1"),
    ],
)
def test_what_cannot_be_resumed_is_said(disturbed: Sweep, changes: dict[str, Any], experiment: str, says: str) -> None:
    with pytest.raises(SweepError, match=says):
        options_of_sweep(experiment, SweepOptions(storage=disturbed.storage, **changes))


def test_fewer_devices_or_another_tracking_store_are_said_before_anything_starts(disturbed: Sweep) -> None:
    here: dict[str, Any] = {"groups": 2, "num_samples": 9, "tracking_uri": disturbed.tracking_uri}
    check_resumable(disturbed.folder, **here)
    with pytest.raises(SweepError, match="had 2 trials at a time, and there is room for 1"):
        check_resumable(disturbed.folder, **{**here, "groups": 1})
    with pytest.raises(SweepError, match=r"its runs are in another tracking store than sqlite:///elsewhere\.db"):
        check_resumable(disturbed.folder, **{**here, "tracking_uri": "sqlite:///elsewhere.db"})


def test_a_sweep_that_runs_is_not_resumed(disturbed: Sweep) -> None:
    with closing(Outbox(disturbed.folder)) as running:
        assert running.take()
        with pytest.raises(SweepError, match="this sweep is running"):
            options_of_sweep("accumulating", SweepOptions(storage=disturbed.storage, resume="sweep"))
    options = options_of_sweep("accumulating", SweepOptions(storage=disturbed.storage, resume="sweep", add_trials=3))
    assert (options.name, options.scheduler, options.search) == ("sweep", "fifo", "random")
    assert f"epoch_s={EPOCH_S}" in options.settings
