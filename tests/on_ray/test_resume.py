"""A sweep that suffers some faults and goes on with --resume; and which sweeps can, and with what.

All faults, again and again: ``python -m tests.tools.faults``.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import STATE_LOG
from gaudi_tune.on_ray.tune_files import CONTROLLER, FILES, PROPOSALS, PUT_BACK, put_back, read_kept_state
from gaudi_tune.sweep.record.events import TERMINATED
from gaudi_tune.sweep.record.state_log import StateLog, pack, read_log
from tests.helpers.fed_state import Fed
from tests.helpers.mlflow_store import empty_store
from tests.helpers.state_records import records_in
from tests.tools.faults.check import check
from tests.tools.faults.inflict import Inflict, tear_state
from tests.tools.faults.sweep import DRIVER, UP_WITHIN_S, Sweep

pytestmark = [pytest.mark.workers, pytest.mark.own_ray]

TRIALS = 6
ENDS_WITHIN_S = 60
CONTINUES = "sweep continues: "
WITH_A_CALLBACK = f"""
from ray import tune
from gaudi_tune.on_ray import ray_watch
from gaudi_tune.on_ray.tuner import SweepTuner

ray_watch.GONE_AFTER_S = 4.0

class Extra(tune.Callback):
    def get_state(self):
        return {{"extra": 1}}
    def set_state(self, state):
        print("a state for", type(self).__name__, state, flush=True)

def with_extra(self, made=SweepTuner._run_config):
    config = made(self)
    config.callbacks.insert(0, Extra())
    return config

SweepTuner._run_config = with_extra
{DRIVER}
"""
"""A command line whose sweep has one callback more than before, and before the others, and misses Ray soon."""


class Ending(NamedTuple):
    """How a driver ended."""

    status: int | None
    printed: str
    summary: dict[str, Any]


class Story(NamedTuple):
    """A sweep, and how its drivers ended before the last."""

    sweep: Sweep
    killed: Ending
    terminated: Ending
    without_gcs: Ending


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Trials that diverge and lose worker and half a checkpoint, and three drivers that end, and do not go on alike.

    The first is killed, and its state is torn; the second adds a trial, and as it trains gets
    SIGTERM with all of its process group; the third then loses Ray's control service. Callbacks come and go.
    """
    folder = tmp_path_factory.mktemp("faults")
    at_once = {"HABANA_STAND_IN_BUSY_S": "0"}  # else each group that comes after a kill is started twice
    sweep = Sweep(folder, "sweep", empty_store(folder / "mlflow.db"), TRIALS, seed=1, variables=at_once)
    inflict = Inflict(sweep, None, random.Random(0))
    told = 0

    def ending() -> Ending:
        nonlocal told
        status, printed = sweep.ended_with(ENDS_WITHIN_S), sweep.printed[told:]
        told = len(sweep.printed)
        file = sweep.folder / "summary.json"
        return Ending(status, printed, json.loads(file.read_text()) if file.is_file() else {})

    def begun() -> bool:
        return "starting 2 worker groups" in sweep.printed[told:] or not sweep.running

    try:
        sweep.code = WITH_A_CALLBACK
        sweep.start()
        assert sweep.wait_for_all(0.0), sweep.printed
        inflict.nan()
        inflict.torn_checkpoint()
        sweep.driver.kill()
        killed = ending()
        tear_state(sweep.folder, random.Random(0))

        sweep.code = DRIVER
        resumed_at = time.time()
        sweep.resume(add_trials=1)
        assert sweep.wait_for_all(resumed_at), sweep.printed
        sweep.terminate_group()
        terminated = ending()

        sweep.code = WITH_A_CALLBACK
        sweep.resume()
        assert sweep.wait_until(begun, UP_WITHIN_S), sweep.printed
        sweep.ray_process("gcs_server").kill()
        without_gcs = ending()

        sweep.resume()
        sweep.finish()
        yield Story(sweep, killed, terminated, without_gcs)
    finally:
        sweep.end()


@pytest.fixture
def disturbed(story: Story) -> Sweep:
    """The sweep, ended."""
    return story.sweep


def test_nothing_is_lost_doubled_or_leaked(disturbed: Sweep) -> None:
    check(disturbed)
    assert disturbed.faults == {"lost": 0, "doubled": 0, "leaked": 0}, disturbed.printed
    assert f"{CONTINUES}{TRIALS + 1} trials" in disturbed.printed


def test_sigterm_to_the_process_group_ends_it_in_good_order(story: Story) -> None:
    status, printed, summary = story.terminated
    assert status == TERMINATED, printed
    assert summary["ended_early"]["why"] == "it received SIGTERM"
    assert summary["interrupted"]
    assert "resume it with: python" in printed


def test_without_rays_control_service_it_ends_and_says_how_to_go_on(story: Story) -> None:
    status, printed, summary = story.without_gcs
    assert status == 1, printed
    assert "the sweep ends early: Ray's control service (GCS) is gone" in printed
    assert "resume it with: python" in printed
    assert summary["ended_early"]["status"] == 1


def test_no_callback_is_given_the_state_of_another(story: Story) -> None:
    assert story.killed.status == -signal.SIGKILL
    assert "a state for" not in story.sweep.printed


def test_every_trial_has_a_folder_of_its_own(disturbed: Sweep) -> None:
    folders = sorted(folder.name for folder in disturbed.folder.glob("trial-*"))
    assert folders == [f"trial-{number:03d}" for number in range(1, TRIALS + 2)]
    summary = json.loads((disturbed.folder / "summary.json").read_text())
    assert summary["counts"] == {"finished": TRIALS, "failed": 1}


def test_the_report_shows_what_was_before_and_after(disturbed: Sweep) -> None:
    report = (disturbed.folder / "report.html").read_text()
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', report, flags=re.DOTALL)
    data = json.loads(text)
    assert data["head"]["counts"] == {"finished": TRIALS, "failed": 1}
    assert [trial["number"] for trial in data["trials"]] == list(range(1, TRIALS + 2))
    (timeline,) = (picture for picture in data["pictures"] if picture["name"] == "timeline")
    _, blocks = timeline["figure"]["data"]
    assert set(map(int, blocks["text"])) == set(range(1, TRIALS + 2))


def accept(parts: dict[str, dict[str, Any]]) -> None:
    """Take over any state."""


def test_the_log_has_every_trial_and_tunes_own_files_are_those_of_the_end(disturbed: Sweep) -> None:
    assert read_kept_state(disturbed.folder, accept).numbers == list(range(1, TRIALS + 2))
    (state,) = disturbed.folder.glob(CONTROLLER.format("*"))
    assert state.name != CONTROLLER.format(PUT_BACK)
    trials = [json.loads(trial) for trial, _ in json.loads(state.read_text())["trial_data"]]
    assert sorted(trial["trial_id"] for trial in trials) == sorted(read_log(disturbed.folder)["tune"]["trials"])


def test_a_log_that_was_cut_off_is_read_as_it_was_before(disturbed: Sweep, tmp_path: Path) -> None:
    there = shutil.copytree(disturbed.folder, tmp_path / disturbed.name)
    content = (there / STATE_LOG).read_bytes()
    *before, (begins, ends) = records_in(content)
    assert before
    (there / STATE_LOG).write_bytes(content[: (begins + ends) // 2])
    state = read_kept_state(there, accept)
    put_back(state, there, retries=2)
    assert set(state.numbers) <= set(range(1, TRIALS + 2))
    for name in FILES:
        assert [file.name for file in there.glob(name.format("*"))] == [name.format(PUT_BACK)]


def test_a_sweep_can_be_moved_and_its_retries_changed(disturbed: Sweep, tmp_path: Path) -> None:
    moved = shutil.copytree(disturbed.folder, tmp_path / "elsewhere" / disturbed.name)
    put_back(read_kept_state(moved, accept), moved, retries=7)
    (file,) = moved.glob(PROPOSALS.format("*"))
    spec = pickle.loads(file.read_bytes())["experiment"].spec
    assert (spec["storage"].experiment_fs_path, spec["max_failures"]) == (str(moved), 7)
    (file,) = moved.glob(CONTROLLER.format("*"))
    trials = [json.loads(trial) for trial, _ in json.loads(file.read_text())["trial_data"]]
    assert [trial["max_failures"] for trial in trials] == [7] * (TRIALS + 1)


def test_a_dry_run_reads_the_same_from_the_log_and_runs_nothing(disturbed: Sweep) -> None:
    in_full, as_data = read_log(disturbed.folder), read_log(disturbed.folder, as_data=True)
    for name in ("sweep", "device_time", "study", "scheduler"):
        assert repr(as_data[name]) == repr(in_full[name])  # texts, because NaN differs from itself
    assert as_data["tune"]["trials"] == in_full["tune"]["trials"]
    assert read_kept_state(disturbed.folder, Fed().state.restore, as_data=True).numbers


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_state_that_this_code_cannot_read_in_full_is_an_error_before_anything_is_written(
    disturbed: Sweep, tmp_path: Path
) -> None:
    there = shutil.copytree(disturbed.folder, tmp_path / disturbed.name)
    parts = read_log(there)
    parts["sweep"]["version"] = 99
    StateLog(there).append(pack(parts))
    before = digests(there)
    state = Fed().state
    with pytest.raises(SweepError, match=r"version is 99, and this code reads version \d.*Nothing was changed"):
        read_kept_state(there, state.restore)
    assert not state.trials
    assert digests(there) == before


def test_without_a_whole_record_it_is_a_clear_error_and_no_new_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "torn"
    folder.mkdir()
    with pytest.raises(SweepError, match=rf"--resume torn: its state cannot be read in full .there is no {STATE_LOG}"):
        read_kept_state(folder, accept)
    (folder / STATE_LOG).write_bytes(b"torn")
    with pytest.raises(SweepError, match=r"--resume torn: .*state.log is damaged.*start a new"):
        read_kept_state(folder, accept)
