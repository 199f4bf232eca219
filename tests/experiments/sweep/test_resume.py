"""A sweep that suffers some faults and goes on with --resume; and which sweeps can, and with what.

All faults, again and again: ``python -m tests.faults``.
"""

from __future__ import annotations

import json
import pickle
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from experiments.sweep.errors import SweepError
from experiments.sweep.options import SweepOptions
from experiments.sweep.resume import KEPT, SNAPSHOTS, STATE_FILES, KeepSnapshots, make_ready, whole_state
from experiments.sweep.search.study_record import STUDY_FILE
from experiments.sweep.sweep_file import SWEEP_FILE, check_resumable, options_of_sweep
from experiments.sweep.tracking.outbox import Outbox
from tests.faults.accumulating import ACCUMULATING
from tests.faults.check import check
from tests.faults.inflict import Inflict
from tests.faults.sweep import EPOCH_S, GONE_WITHIN_S, Sweep

TRIALS = 6
LATER = "2999-01-01_00-00-00"
"""When Tune's state was written, it seems, if the clock is set back after that."""


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    """A sweep with a trial that diverges, one that loses its worker and half its checkpoint, and a killed driver whose
    state is torn, and of a day to come; resumed with one trial more."""
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
        date_state(sweep.folder, LATER)
        inflict.tear_state()
        sweep.resume(add_trials=1)
        sweep.finish()
        yield sweep
    finally:
        sweep.end()


def date_state(folder: Path, date: str) -> None:
    """Rename Tune's state as if it had been written then."""
    for place in [folder, *folder.glob(f"{SNAPSHOTS}/*")]:
        for pattern in STATE_FILES:
            for file in place.glob(pattern):
                file.rename(file.with_name(pattern.replace("*", date)))


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


def test_state_of_before_does_not_take_the_place_of_a_newer_one(disturbed: Sweep) -> None:
    snapshots = list((disturbed.folder / SNAPSHOTS).glob("[0-9]*"))
    assert len(snapshots) == KEPT
    for file in (file for snapshot in snapshots for file in whole_state(snapshot)):
        assert LATER not in file.name
    newest = max(snapshots, key=lambda folder: int(folder.name))
    (state,) = newest.glob("experiment_state-*.json")
    assert len(json.loads(state.read_text())["trial_data"]) == TRIALS + 1


def test_torn_state_is_found_and_repaired_from_a_snapshot(disturbed: Sweep) -> None:
    for pattern in STATE_FILES:
        newest = max(disturbed.folder.glob(pattern))
        newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
        assert whole_state(disturbed.folder) == []
    make_ready(disturbed.folder, retries=2)
    assert len(whole_state(disturbed.folder)) == len(STATE_FILES)


def test_a_sweep_can_be_moved_and_its_retries_changed(disturbed: Sweep, tmp_path: Path) -> None:
    moved = shutil.copytree(disturbed.folder, tmp_path / "elsewhere" / disturbed.name)
    make_ready(moved, retries=7)
    (file,) = moved.glob("search_gen_state-*.json")
    spec = pickle.loads(file.read_bytes())["experiment"].spec
    assert (spec["storage"].experiment_fs_path, spec["max_failures"]) == (str(moved), 7)
    (file,) = moved.glob("experiment_state-*.json")
    trials = [json.loads(trial) for trial, _ in json.loads(file.read_text())["trial_data"]]
    assert [trial["max_failures"] for trial in trials] == [7] * (TRIALS + 1)


def test_a_study_that_is_gone_is_an_error_and_not_begun_anew(disturbed: Sweep, tmp_path: Path) -> None:
    there = shutil.copytree(disturbed.folder, tmp_path / disturbed.name)
    make_ready(there, retries=2)
    for spoil in (lambda file: file.write_bytes(file.read_bytes()[:5000]), Path.unlink):
        spoil(there / STUDY_FILE)
        with pytest.raises(SweepError, match=rf"{STUDY_FILE} has 0 trials of {TRIALS + 1}; put that file back"):
            make_ready(there, retries=2)


def test_a_state_that_the_study_has_not_is_not_kept(disturbed: Sweep, tmp_path: Path) -> None:
    state = Path(shutil.copytree(disturbed.folder / SNAPSHOTS, tmp_path / "snapshots"))
    newest = max(state.glob("[0-9]*"), key=lambda folder: int(folder.name))
    (file,) = newest.glob("searcher-state-*.pkl")
    assert len(whole_state(newest)) == len(STATE_FILES)
    file.write_text(json.dumps({**json.loads(file.read_text()), "flushed": False}))
    assert whole_state(newest) == []


def test_tune_must_have_read_the_state(tmp_path: Path) -> None:
    KeepSnapshots(tmp_path, resumed=False).setup()
    resumed = KeepSnapshots(tmp_path, resumed=True)
    with pytest.raises(SweepError, match=r"--resume .*: Tune could not read the sweep's state"):
        resumed.setup()
    resumed.set_state(KeepSnapshots(tmp_path, resumed=False).get_state())
    resumed.setup()


def test_without_any_whole_state_it_is_a_clear_error_and_no_new_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "torn"
    (folder / SNAPSHOTS / "1").mkdir(parents=True)
    (folder / SNAPSHOTS / "1" / "experiment_state-1.json").write_text('{"trial_data": [')
    with pytest.raises(SweepError, match=r"--resume torn: Tune's state in .* is missing or torn.*start a new sweep"):
        make_ready(folder, retries=2)


@pytest.mark.parametrize(
    ("changes", "experiment", "says"),
    [
        ({"resume": "other"}, "accumulating", r"--resume other: no such sweep in .*; there: sweep"),
        ({"resume": "/tmp/sweep"}, "accumulating", "/tmp/sweep: give the sweep's name, and the folder .* as --storage"),
        ({"resume": "sweep"}, "bert", "that is a sweep of accumulating, not of bert"),
        ({"resume": "sweep", "num_samples": 9, "seed": 2}, "accumulating", "leave out --num-samples, --seed"),
        ({"resume": "sweep", "add_trials": -1}, "accumulating", "--add-trials must be at least 0, but got -1"),
    ],
)
def test_what_cannot_be_resumed_is_said(disturbed: Sweep, changes: dict[str, Any], experiment: str, says: str) -> None:
    with pytest.raises(SweepError, match=says):
        options_of_sweep(experiment, SweepOptions(storage=disturbed.storage, **changes))


def test_another_space_fewer_devices_or_another_store_are_said_before_anything_starts(disturbed: Sweep) -> None:
    here: dict[str, Any] = {"groups": 2, "num_samples": 9, "tracking_uri": disturbed.tracking_uri}
    here["space"] = ACCUMULATING.space
    check_resumable(disturbed.folder, **here)
    other = {"x": tune.uniform(-2.0, 1.0), "y": tune.choice([1, 2])}
    with pytest.raises(SweepError, match="the search space is another for x, y, and a study has one space"):
        check_resumable(disturbed.folder, **{**here, "space": other})
    with pytest.raises(SweepError, match="had 2 trials at a time, and there is room for 1"):
        check_resumable(disturbed.folder, **{**here, "groups": 1})
    with pytest.raises(SweepError, match=r"its runs are in another tracking store than sqlite:///elsewhere\.db"):
        check_resumable(disturbed.folder, **{**here, "tracking_uri": "sqlite:///elsewhere.db"})


def test_a_sweep_that_runs_is_not_resumed(disturbed: Sweep) -> None:
    with closing(Outbox(disturbed.folder)) as running:
        assert running.take()
        with pytest.raises(SweepError, match="this sweep is running"):
            options_of_sweep("accumulating", SweepOptions(storage=disturbed.storage, resume="sweep"))
        with pytest.raises(SweepError, match="this sweep is running"):
            make_ready(disturbed.folder, retries=2)
    options = options_of_sweep("accumulating", SweepOptions(storage=disturbed.storage, resume="sweep", add_trials=3))
    assert (options.name, options.scheduler, options.search) == ("sweep", "fifo", "random")
    assert f"epoch_s={EPOCH_S}" in options.settings


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[:40], r"sweep\.json is torn .*start a new sweep under another name"),
        (lambda text: text.replace('"seed"', '"sead"'), r"another version of this project began it .*sead"),
    ],
)
def test_a_sweep_file_that_cannot_be_read_is_said(
    disturbed: Sweep, tmp_path: Path, change: Callable[[str], str], says: str
) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / SWEEP_FILE).write_text(change((disturbed.folder / SWEEP_FILE).read_text()))
    with pytest.raises(SweepError, match=says):
        options_of_sweep("accumulating", SweepOptions(storage=tmp_path, resume="sweep"))
